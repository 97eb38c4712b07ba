"""Cases of compare: simulated pairs of runs, equal but for one fault, and a run with itself."""
import pathlib
import subprocess
import tempfile

import lib

MAKE_JOB = lib.BUILD / "tests" / "make_job"

# The group of compare that a fault must show in.
GROUP_OF_FAULT = {"clock": "kernels", "memory_bandwidth": "kernels", "imbalance": "kernels", "host_op": "host",
                  "host_pause": "host", "input": "input", "allocator": "allocator", "issued_late": "communication"}
TOPOLOGIES = ("ddp", "fsdp2", "tp_fsdp")


def make_job(folder, *options):
    run = subprocess.run([str(MAKE_JOB), "--out", str(folder), "--steps", "6", *map(str, options)], capture_output=True,
                         text=True, stdin=subprocess.DEVNULL, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"make_job {' '.join(map(str, options))}: {run.stderr.strip()}")
    return folder


def comparison(before, after):
    result = lib.paceline("compare", before, after)
    if result.status != 0:
        raise RuntimeError(f"compare ended with {result.status}: {result.err.strip()}")
    return result.json


def add_cases(room, seeds=2):
    @room.case("compare: a run with itself, changes other than zero")
    def itself(case):
        with tempfile.TemporaryDirectory() as folder:
            job = make_job(pathlib.Path(folder, "a"), "--topology", "fsdp2", "--fault", "none")
            result = comparison(job, job)
            changed = sum(row["change_ns"] != 0 for row in result["changes"]) + (result["not_explained_ns"] != 0)
            case.report(changed, "==", 0, n=len(result["changes"]))

    @room.case("compare: share of the difference charged to the injected cause, least")
    def shares(case):
        least, exact, pairs, worst = 1.0, 0, 0, ""
        for topology in TOPOLOGIES:
            for seed in range(1, seeds + 1):
                with tempfile.TemporaryDirectory() as folder:
                    common = ("--topology", topology, "--seed", seed)
                    before = make_job(pathlib.Path(folder, "none"), *common, "--fault", "none")
                    for fault, group in GROUP_OF_FAULT.items():
                        after = make_job(pathlib.Path(folder, fault), *common, "--fault", fault)
                        result = comparison(before, after)
                        groups = {row["group"]: row["change_ns"] for row in result["groups"]}
                        share = groups.get(group, 0) / result["change_ns"]
                        pairs += 1
                        exact += sum(groups.values()) + result["not_explained_ns"] == result["change_ns"]
                        if share < least:
                            least, worst = share, f"{topology}, {fault}, seed {seed}"
        case.report(least, ">=", 0.95, n=pairs, note=f"least: {worst}")
        case.report(exact, "==", pairs, n=pairs, name="compare: differences that add up to the nanosecond")
