"""Acceptance of tune: fusion against brute force, searches, plans for latency-bound jobs."""
import json
import subprocess

import lib

MEASURE = lib.BUILD / "tests" / "tune_measure"


def measure(*arguments):
    run = subprocess.run([str(MEASURE), *map(str, arguments)], capture_output=True, text=True, timeout=1200,
                         stdin=subprocess.DEVNULL, check=False)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    return json.loads(run.stdout)


def main():
    room = lib.Room("tune")

    @room.case("fusion by dynamic programme = brute force")
    def fusion(case):
        result = measure("fusion", 200)
        case.report(result["equal"], "==", result["instances"], n=result["instances"], note="n <= 10, seeds 1 to 200")
        case.report(result["fewer"], ">=", 10.0, unit="x", n=result["instances"], name="fewer evaluations with pruning",
                    note=f"makespan the same or better in {result['not_worse']} of {result['instances']}")
        case.report(result["not_worse"], "==", result["instances"], n=result["instances"],
                    name="pruning on: makespan the same or better")

    @room.case("a latency-bound job")
    def latency_bound(case):
        result = measure("latency")
        case.report(result["small_gap_percent"], "<=", 1.0, unit="%", n=result["small"],
                    name="latency-bound, small: gain found against brute force")
        case.report(result["large_speedup"], ">=", 3.0, unit="x", n=result["large_tensors"],
                    name="latency-bound, large: over one message per tensor", note="time of the backward pass with its synchronisation")

    @room.case("candidates looked at")
    def candidates(case):
        result = measure("candidates")
        case.report(result["per_second"], ">=", 1000.0, unit="/s", n=result["candidates"],
                    note=f"on {result['tasks']} tasks, CPU time")

    @room.case("never worse than the start")
    def never_worse(case):
        sets = [lib.data(f"dpro/{path}") for path in ("param/dlrm_kineto.tar.gz", "hta/df_index_resolver",
                                                      "recorded/mlp_w2_b0p4", "recorded/tfm_w4_b0p5")]
        worse = 0
        for path in sets:
            result = lib.paceline("tune", path)
            if result.status != 0:
                raise RuntimeError(result.err.strip())
            worse += result.json["joint"]["after"]["ns"] > result.json["joint"]["before"]["ns"]
        case.report(worse, "==", 0, n=len(sets), data=sets)

    room.finish()


if __name__ == "__main__":
    main()
