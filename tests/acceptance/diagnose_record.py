"""Cases of `record`: a real gloo job with an unchanged script, recorded and diagnosed."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import lib

PAIRS = 5  # the mean step moves by up to 10 ms from one recording to the next on a machine with two cores
TRAIN = lib.ROOT / "tests" / "record" / "train.py"


def torch_python():
    """$PACELINE_TORCH_PYTHON, or Debian's Python with python3-torch."""
    python = os.environ.get("PACELINE_TORCH_PYTHON", "/usr/bin/python3")
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        raise lib.NoPeer(f"no torch in {python}; apt-get install python3-torch")
    return python


def record(folder, *arguments, options=("--measure-overhead",)):
    """(exit status, standard output, standard error) of the recorded job."""
    command = [lib.COMMAND, "record", "--out", folder, "--wait", "6", "--steps", "12", *options, "--", torch_python(), TRAIN,
               "spawn", "--steps", "22", *arguments]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                         env=dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1"), timeout=600)
    return run.returncode, run.stdout, run.stderr


def add_cases(room):
    @room.case("record: exit status of an unchanged gloo job")
    def gloo_job(case):
        with tempfile.TemporaryDirectory() as parent:
            folder = pathlib.Path(parent, "recording")
            status, output, messages = record(folder, "--ranks", "2", "--sleep-rank", "1")
            case.report(status, "==", 0)
            lines = [line for line in output.splitlines() if not re.fullmatch(r"step \d+: \d\.\d{6}", line)]
            case.report(len(lines), "==", 0, n=22, name="record: lines of output that are not the script's")
            result = lib.paceline("diagnose", folder)
            case.report(result.status, "==", 0, name="record: exit status of diagnose on it")
            case.report(len(result.json["ranks"]), "==", 2, name="record: ranks in it")
            case.report(min(len(rank["steps"]) for rank in result.json["ranks"]), "==", 12, n=2,
                        name="record: steps of each rank in it")
            case.report(result.json["late_rank"], "==", 1, n=12, name="record: rank named late, which sleeps 30 ms a step")
            cost = json.loads((folder / "manifest.json").read_text())["overhead"]
            share = 100 * (cost["step_recorded_cpu_ns"] / cost["step_before_cpu_ns"] - 1)
            case.report(share, "<=", 50.0, n=2 * 12, unit="%", name="record: overhead of a recorded step, CPU time",
                        note=f"{cost['step_recorded_cpu_ns'] / 1e6:.2f} ms against {cost['step_before_cpu_ns'] / 1e6:.2f} "
                             f"ms before; {cost['once_cpu_ns'] / 1e6:.0f} ms a rank to start, stop and write")
            whole = 100 * (cost["command_cpu_s"] / cost["command_without_recording_cpu_s"] - 1)
            case.report(whole, "<=", 50.0, unit="%", name="record: overhead of the whole command, CPU time",
                        note=f"{cost['command_cpu_s']:.2f} s against {cost['command_without_recording_cpu_s']:.2f} s")
            print(messages, file=sys.stderr, end="")

    @room.case("record: a pair, share charged to rank 1's host")
    def pair(case):
        job = ("--ranks", "2", "--pin", "--width", "512")
        load = os.getloadavg()[0]
        causes, shares, changes = [], [], []
        for _ in range(PAIRS):
            with tempfile.TemporaryDirectory() as parent:
                before, after = pathlib.Path(parent, "before"), pathlib.Path(parent, "after")
                for folder, arguments in ((before, ()), (after, ("--sleep-rank", "1", "--sleep-ms", "20"))):
                    status, _, messages = record(folder, *job, *arguments, options=())
                    if status != 0:
                        raise RuntimeError(f"record ended with {status}: {messages.strip()}")
                result = lib.paceline("compare", before, after).json
            first = result["changes"][0]
            causes.append(f"{first['group']}, rank {first.get('rank')}")
            changes.append(result["change_ns"] / 1e6)
            shares.append(sum(row["change_ns"] for row in result["changes"]
                              if row["group"] in ("host", "input") and row.get("rank") == 1) / result["change_ns"])
        right = causes.count("host, rank 1")
        case.report(right, "==", PAIRS, n=PAIRS, name="record: pairs whose first cause is rank 1's host")
        case.report(statistics.median(shares), ">=", 0.90, n=PAIRS,
                    note=f"median of {', '.join(f'{share:.2f}' for share in shares)}; the step changed by "
                         f"{min(changes):.0f} to {max(changes):.0f} ms; load average {load:.1f}")
