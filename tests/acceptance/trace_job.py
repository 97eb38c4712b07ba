"""Cases of the trace room that look at whole jobs: the figures of diagnose against known values and against the peer."""
import json
import os
import pathlib
import random
import subprocess
import tarfile
import tempfile

import lib

DLRM = "dpro/param/dlrm_kineto.tar.gz"
RESOLVER = "dpro/hta/df_index_resolver/df_index_resolver.json.gz"

# The 8-rank DLRM job by an independent script over the raw JSON, equal to HTA's figures to the microsecond. Per rank:
# step start (us after 1694128201000000), step, communication, compute, overlap (us and %), idle, waiting, times last.
DLRM_TRUTH = {
    0: (426674, 14455, 5798, 1034, 261, 4.50, 6419, 5581, 0),
    1: (421205, 19901, 11336, 1246, 280, 2.47, 6428, 11119, 0),
    2: (428092, 13017, 3492, 1068, 275, 7.88, 7046, 3275, 0),
    3: (421900, 19313, 9774, 1240, 324, 3.31, 8145, 9557, 0),
    4: (424049, 17979, 6587, 1126, 37, 0.56, 8887, 6370, 1),
    5: (424195, 17797, 6251, 1041, 40, 0.64, 9121, 6034, 2),
    6: (428080, 13091, 3558, 1051, 269, 7.56, 7051, 3341, 0),
    7: (428718, 12509, 1746, 1059, 166, 9.51, 8308, 1529, 5),
}
DLRM_BASE_US = 1694128201000000
DLRM_TRANSFER_US = [10, 8, 7, 7, 86, 10, 20, 69]


def diagnosis(*arguments):
    result = lib.paceline("diagnose", *arguments)
    if result.status != 0:
        raise RuntimeError(f"diagnose ended with {result.status}: {result.err.strip()}")
    return result.json


def idle_of(step):
    return step["idle_host_ns"] + step["idle_gap_ns"] + step["idle_other_ns"]


def dlrm_cases(room):
    @room.case("DLRM: step, busy, overlap, idle, wait of 8 ranks, worst")
    def table(case):
        path = lib.data(DLRM)
        worst_us, worst_points, last_right, sum_right = 0.0, 0.0, 0, 0
        for rank in diagnosis(path)["ranks"]:
            start, step_us, comm, compute, overlap, percent, idle, wait, last = DLRM_TRUTH[rank["rank"]]
            step = rank["steps"][0]
            pairs = [(step["begin_ns"] / 1e3 - DLRM_BASE_US, start), (step["duration_ns"] / 1e3, step_us),
                     (step["communication_ns"] / 1e3, comm), (step["compute_ns"] / 1e3, compute),
                     (step["overlap_ns"] / 1e3, overlap), (idle_of(step) / 1e3, idle),
                     (rank["wait_per_step_ns"] / 1e3, wait)]
            worst_us = max([worst_us, *(abs(found - known) for found, known in pairs)])
            worst_points = max(worst_points, abs(100 * step["overlap_ns"] / step["communication_ns"] - percent))
            last_right += rank["times_last"] == last
            parts = ("compute", "exposed_wait", "exposed_transfer", "exposed_copies", "idle_host", "idle_gap",
                     "idle_other", "lead", "tail")
            sum_right += sum(step[f"{part}_ns"] for part in parts) == step["duration_ns"]
        case.report(worst_us, "<=", 1.0, n=56, data=[path], unit="us")
        case.report(worst_points, "<=", 0.01, n=8, data=[path], unit="points", name="DLRM: overlap of 8 ranks, worst")
        case.report(last_right, "==", 8, n=8, data=[path], name="DLRM: ranks with the right count of late arrivals")
        case.report(sum_right, "==", 8, n=8, data=[path], name="DLRM: steps whose parts add up to the nanosecond")

    @room.case("DLRM: rank named late (not 1, the longest waiting)")
    def late(case):
        path = lib.data(DLRM)
        result = diagnosis(path)
        case.report(result["late_rank"], "==", 7, n=8, data=[path])
        transfers = [row["transfer_ns"] / 1e3 for row in result["collectives"]]
        case.report(sum(transfers), "==", 217, n=8, data=[path], unit="us", name="DLRM: total pure transfer")
        case.report(transfers == DLRM_TRANSFER_US, "==", True, n=8, data=[path],
                    name="DLRM: pure transfer of each collective")
        case.report(max(row["end_spread_ns"] for row in result["collectives"]) / 1e3, "<=", 7, n=8, data=[path],
                    unit="us", name="DLRM: end spread of collectives, worst")

    @room.case("DLRM: injected clock offsets recovered, worst")
    def clocks(case):
        path = lib.data(DLRM)
        ranks = {}
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".json") and "/._" not in member.name:
                    job = json.load(archive.extractfile(member))
                    ranks[job["distributedInfo"]["rank"]] = job
        worst, named, trials = 0.0, 0, 3
        for seed in range(trials):
            chance = random.Random(seed)
            offsets = {rank: 0 if rank == 0 else chance.randint(-1_000_000, 1_000_000) for rank in ranks}
            with tempfile.TemporaryDirectory() as folder:
                for rank, job in ranks.items():
                    shifted = dict(job, traceEvents=[dict(event, ts=event["ts"] + offsets[rank])
                                                     for event in job["traceEvents"]])
                    pathlib.Path(folder, f"rank-{rank}.json").write_text(json.dumps(shifted), encoding="utf-8")
                result = diagnosis(folder)
            named += result["late_rank"] == 7
            for rank in result["ranks"]:
                worst = max(worst, abs(rank["clock"]["offset_ns"] / 1e3 - offsets[rank["rank"]]))
        case.report(worst, "<=", 10, n=8 * trials, data=[path], unit="us", note="offsets up to 1 s, seeds 0..2")
        case.report(named, "==", trials, n=trials, data=[path], name="DLRM: rank 7 named in spite of the offsets")


def peer_report(path):
    """The peer's figures of one trace, default step convention."""
    python = lib.peer_python()
    script = lib.ROOT / "bench" / "hta_report.py"
    run = subprocess.run([str(python), "-B", str(script), str(path), "--json", "--serial", "--variant", "default"],
                         capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if run.returncode != 0:
        raise lib.NoPeer(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else "the peer failed")
    return json.loads(run.stdout)


def hta_cases(room):
    @room.case("df_index_resolver: figures equal to HTA's, worst")
    def figures(case):
        path = lib.data(RESOLVER)
        peer = peer_report(path)["variants"]["default"]["ranks"]["1"]
        rank = diagnosis(path, "--skip-last-step")["ranks"][0]
        device = rank["device"]
        busy_rest = device["span_ns"] - device["idle_ns"] - device["compute_ns"]
        pairs = [(device["idle_ns"] / 1e3, peer["idle_us"]), (device["compute_ns"] / 1e3, peer["compute_us"]),
                 (busy_rest / 1e3, peer["non_compute_us"]), (device["span_ns"] / 1e3, peer["kernel_time_us"])]
        streams = {entry["stream"]: entry for entry in device["streams"]}
        for row in peer["idle_split"]:
            pairs.append((streams[str(row["stream"])][f"{row['category']}_ns"] / 1e3, row["idle_us"]))
        case.report(max(abs(found - known) for found, known in pairs), "<=", 1.0, n=len(pairs), data=[path], unit="us",
                    note="idle, compute, non-compute, idle split of each stream")
        kernels = {row["name"]: row for row in rank["kernels"]}
        worst, counts = 0.0, 0
        for row in peer["kernels"]:
            mine = kernels[row["name"]]
            worst = max(worst, abs(mine["total_ns"] / 1e3 - row["sum_us"]),
                        abs(mine["min_ns"] / 1e3 - row["min_us"]), abs(mine["max_ns"] / 1e3 - row["max_us"]),
                        abs(mine["total_ns"] / mine["count"] / 1e3 - row["mean_us"]))
            counts += mine["count"] == row["count"]
        case.report(worst, "<=", 1.0, n=4 * len(peer["kernels"]), data=[path], unit="us",
                    name="df_index_resolver: sum, min, max, mean of each kernel")
        case.report(counts, "==", len(peer["kernels"]), n=len(peer["kernels"]), data=[path],
                    name="df_index_resolver: kernels with HTA's count")

    @room.case("df_index_resolver: load and all reports, one core")
    def speed(case):
        path = lib.data(RESOLVER)
        ours = lib.cpu_time([lib.COMMAND, "diagnose", path, "--threads", "1"])
        case.report(ours.seconds, "<=", 0.6, data=[path], unit="s", usage=ours,
                    note="the bound is for loading alone; 1.0 s with all reports")
        case.report(ours.peak_bytes / 1e6, "<=", 150, data=[path], unit="MB", name="df_index_resolver: peak memory")
        python = lib.peer_python()
        peer = lib.cpu_time([python, "-B", lib.ROOT / "bench" / "hta_report.py", path, "--json", "--serial", "--variant",
                             "default"], env=dict(os.environ, PYTHONWARNINGS="ignore"))
        case.report(peer.seconds / ours.seconds, ">=", 25, data=[path], unit="x",
                    name="df_index_resolver: times faster than HTA",
                    note=f"HTA {peer.seconds:.2f} s CPU, import and reports included")
        case.report(peer.peak_bytes / ours.peak_bytes, ">=", 2, data=[path], unit="x",
                    name="df_index_resolver: times less memory than HTA", note=f"HTA {peer.peak_bytes / 1e6:.0f} MB")


def add_cases(room):
    dlrm_cases(room)
    hta_cases(room)
