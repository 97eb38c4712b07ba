"""Soak of the trace room: damage for a minute of CPU per large document, and ten minutes of fuzzing."""
import os
import re
import subprocess
import sys

import lib
import trace

SEED = 20261201
FUZZ_SECONDS = 600


def fuzz_target(name):
    """The fuzz program, built under AddressSanitizer and UBSan."""
    for command in (["cmake", "--preset", "fuzz"],
                    ["cmake", "--build", "--preset", "fuzz", "--target", f"{name}_fuzz", "--", "--quiet"]):
        run = subprocess.run(command, cwd=lib.ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {(run.stdout + run.stderr)[-2000:]}")
    return lib.ROOT / "build" / "fuzz" / "fuzz" / f"{name}_fuzz"


def fuzz_case(soak):
    @soak.case("fuzzing under ASan and UBSan: reports")
    def fuzzing(case):
        program = fuzz_target("kineto")
        found = lib.ROOT / "build" / "fuzz" / "soak_corpus"
        found.mkdir(parents=True, exist_ok=True)
        seeds = lib.ROOT / "fuzz" / "corpus" / "kineto"
        run = subprocess.run([program, f"-max_total_time={FUZZ_SECONDS}", "-timeout=20", "-rss_limit_mb=2048",
                              "-max_len=8192", "-print_final_stats=1", f"-seed={SEED}", f"-dict={seeds}.dict",
                              f"-artifact_prefix={found.parent}/", found, seeds],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
                             env=dict(os.environ, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"))
        if run.returncode != 0:
            print(run.stderr[-4000:], file=sys.stderr)
        units = re.search(r"number_of_executed_units: +(\d+)", run.stderr)
        case.report(int(run.returncode != 0), "==", 0, n=int(units[1]) if units else 0, data=[seeds], seed=SEED,
                    name=f"{FUZZ_SECONDS} s of fuzzing: reports")


if __name__ == "__main__":
    room = lib.Soak("trace")
    trace.robustness_cases(room, seconds=60, seed=SEED)
    fuzz_case(room)
    room.finish()
