"""Acceptance of the trace room: reading whatever people send, and the figures of whole jobs (trace_job.py)."""
import json
import os
import pathlib
import subprocess
import tempfile

import lib
import trace_job

DATA = "dpro"
RESOLVER = "dpro/hta/df_index_resolver/df_index_resolver.json.gz"
LOAD = lib.BUILD / "tests" / "load_trace"
GENERATE = lib.BUILD / "tests" / "generate_trace"
ROBUSTNESS = lib.BUILD / "tests" / "trace_robustness"

# Files beside the traces that are something else; each must be refused with exit status 3 and words of advice.
OTHER_FORMATS = ("_et.json", "_et.tar", "pytorch_et", "eg_rank", "memory_timeline", "/chakra/json_trace", "/simai/", "README")


def files_below(folder):
    return sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())


def is_trace(path):
    return not any(part in str(path) for part in OTHER_FORMATS)


def reading_cases(room):
    @room.case("Kineto, Chrome and Chakra traces that load")
    def every_trace(case):
        folder = lib.data(DATA)
        traces = [path for path in files_below(folder) if is_trace(path)]
        good = [path for path in traces if lib.paceline("diagnose", path).status == 0]
        for path in set(traces) - set(good):
            print(f"  not read: {path}: {lib.paceline('diagnose', path).err.strip()}")
        case.report(len(good), "==", len(traces), n=len(traces), data=[folder])

    @room.case("other formats refused with advice")
    def other_formats(case):
        folder = lib.data(DATA)
        others = [path for path in files_below(folder) if not is_trace(path)]
        refused = 0
        for path in others:
            result = lib.paceline("diagnose", path)
            advised = path.name in result.err and any(
                word in result.err for word in ("give the", "expected", "holds no", "record the trace"))
            if result.status == 3 and advised:
                refused += 1
            else:
                print(f"  exit {result.status}: {path}: {result.err.strip()}")
        case.report(refused, "==", len(others), n=len(others), data=[folder])


def robustness_cases(room, seconds=5, seed=1):
    """Also the soak's, with more time for the large documents."""
    stored = {"seed": seed} if isinstance(room, lib.Soak) else {}

    @room.case("damaged traces: events lost that the damage did not touch")
    def damaged(case):
        folder = lib.data(DATA)
        traces = [path for path in files_below(folder) if is_trace(path) and "/chakra/" not in str(path)]
        run = subprocess.run([ROBUSTNESS, "--seed", str(seed), "--seconds", str(seconds), *traces],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        lines = run.stdout.splitlines()
        for line in lines:
            if "FAULT" in line:
                print("  " + line[:300])
        result = json.loads(lines[-1])
        for kind, found in result["kinds"].items():
            case.report(found["lost"], "==", 0, n=found["expected"], data=[folder], name=f"{kind}: events lost",
                        note=f"{found['loads']} loads of {result['documents']} documents, seed {seed}; "
                             f"{found['expected'] - found['lost']} of {found['expected']} events kept", **stored)
        kinds = result["kinds"].values()
        loads = sum(found["loads"] for found in kinds)
        case.report(sum(found["silent"] for found in kinds), "==", 0, n=loads, data=[folder],
                    name="damaged: loads that miss events and name no byte", **stored)
        case.report(sum(found["thrown"] for found in kinds), "==", 0, n=loads, data=[folder],
                    name="damaged: loads refused though events were whole", **stored)


def damaged_command_cases(room):
    @room.case("half of a .gz: result, message and exit status 6")
    def half(case):
        path = lib.data(RESOLVER)
        whole = json.loads(subprocess.run([LOAD, path], capture_output=True, text=True, check=True).stdout)["events"]
        with tempfile.TemporaryDirectory() as folder:
            cut = pathlib.Path(folder) / "half.json.gz"
            cut.write_bytes(path.read_bytes()[:path.stat().st_size // 2])
            result = lib.paceline("diagnose", cut)
            loaded = subprocess.run([LOAD, cut], capture_output=True, text=True, check=False)
            told = "half.json.gz" in result.err and "byte" in result.err
            case.report(result.status if told else -1, "==", 6, data=[path],
                        note=f"{json.loads(loaded.stdout)['events']} of {whole} events; says: {result.err.strip()[:120]}")


def report_five_gigabytes(case, *command):
    """Peak memory of a command that is given a 5 GB trace through a pipe."""
    size = 5_000_000_000
    with tempfile.TemporaryDirectory() as folder:
        pipe = pathlib.Path(folder) / "rank-0.json"
        os.mkfifo(pipe)
        # The writer opens the pipe itself, so that this program does not wait for a reader that failed.
        with subprocess.Popen(["sh", "-c", f'exec "$0" {size} 1 > "$1"', GENERATE, pipe],
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as writer:
            usage = lib.measure([*command, pipe])
            if usage.status != 0:
                writer.kill()
            written = writer.stderr.read().strip()
    case.report(usage.peak_bytes / 1e9 if usage.status == 0 else None, "<=", 1.5, unit="GB",
                note=f"{written}; {usage.seconds:.1f} s CPU, {usage.wall:.1f} s wall; exit {usage.status}")


def size_cases(room):
    @room.case("a 5 GB trace: peak memory of loading")
    def five_gigabytes(case):
        report_five_gigabytes(case, LOAD)

    @room.case("df_index_resolver: loading, one core")
    def resolver(case):
        path = lib.data(RESOLVER)
        usage = lib.cpu_time([LOAD, path])
        case.report(usage.seconds, "<=", 0.6, data=[path], unit="s", usage=usage, note="53.7 MB, packed")
        case.report(usage.peak_bytes / 1e6, "<=", 150, data=[path], unit="MB",
                    name="df_index_resolver: peak memory of loading")

    @room.case("paceline --version: time")
    def version(case):
        usage = lib.cpu_time([lib.COMMAND, "--version"])
        case.report(usage.wall * 1e3, "<", 20, unit="ms")
        case.report(usage.peak_bytes / 1e6, "<", 20, unit="MB", name="paceline --version: peak memory")


if __name__ == "__main__":
    acceptance = lib.Room("trace")
    reading_cases(acceptance)
    robustness_cases(acceptance)
    damaged_command_cases(acceptance)
    size_cases(acceptance)
    trace_job.add_cases(acceptance)
    acceptance.finish()
