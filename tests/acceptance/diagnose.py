"""Acceptance of diagnose: simulated jobs of known truth (tests/support/make_job.cc), small ones for the culprits and
large ones for time and memory.

    diagnose.py [--only WORD] [--seeds N]    only the cases whose name holds the word; fewer seeds while developing
"""
import argparse
import collections
import os
import pathlib
import pty
import select
import shutil
import subprocess
import tempfile
import time

import diagnose_compare
import diagnose_excerpt
import diagnose_page
import diagnose_record
import lib
import trace

MAKE_JOB = lib.BUILD / "tests" / "make_job"
SCRATCH = lib.ROOT / "build"  # on disk: the large job takes 3.4 GB

RANK_FAULTS = ("clock", "memory_bandwidth", "host_op", "host_pause", "input", "allocator", "imbalance")
JOB_FAULTS = ("launch_bound", "issued_late", "too_big")
LINK_FAULTS = ("link_inter", "link_intra", "link_rail")
# A link shows where some groups cross it and others do not.
TOPOLOGIES = {**{fault: ("ddp", "fsdp2", "tp_fsdp") for fault in RANK_FAULTS + JOB_FAULTS + ("whole_host", "none")},
              **{fault: ("hsdp", "tp_fsdp", "pipeline") for fault in LINK_FAULTS}}
STEPS = 6


class Job:
    """A job in a folder of its own that goes away."""

    def __init__(self, *options):
        self.options = list(map(str, options))

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=SCRATCH))
        run = subprocess.run([str(MAKE_JOB), "--out", str(self.folder), *self.options], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, check=False)
        if run.returncode != 0:
            self.__exit__()
            raise RuntimeError(f"make_job {' '.join(self.options)}: {run.stderr.strip()}")
        self.truth = lib.json.loads((self.folder / "truth.json").read_text(encoding="utf-8"))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def traces(self):
        return self.folder

    def diagnosis(self, *options):
        result = lib.paceline("diagnose", self.folder, *options)
        if result.status != 0:
            raise RuntimeError(f"diagnose ended with {result.status}: {result.err.strip()}")
        return result.json


def wrong(verdict, truth):
    """What of a verdict is not as it was, '' when all is."""
    known = truth["verdict"]
    if verdict is None:
        return "no verdict"
    faults = []
    if verdict.get("kind") != known["kind"]:
        faults.append(f"kind {verdict.get('kind')}, not {known['kind']}")
    if known["class"] and verdict.get("class") != known["class"]:
        faults.append(f"class {verdict.get('class')}, not {known['class']}")
    if known["rank"] is not None and verdict.get("rank") != known["rank"]:
        faults.append(f"rank {verdict.get('rank')}, not {known['rank']}")
    if known["kind"] == "no_culprit" and verdict.get("rank") is not None:
        faults.append(f"rank {verdict['rank']} blamed")
    if known["kind"] == "late_host" and verdict.get("host") not in known["hosts"]:
        faults.append(f"host {verdict.get('host')}, not {known['hosts'][0]}")
    if known["kind"] == "slow_link" and known["hosts"] and verdict.get("host") not in [None, *known["hosts"]]:
        faults.append(f"host {verdict['host']}, none of {', '.join(known['hosts'])}")
    return "; ".join(faults)


def hosts_file(job):
    """Kineto traces do not name hosts; people give a list."""
    path = job.folder / "hosts.txt"
    path.write_text("".join(f"{rank} {host}\n" for rank, host in enumerate(job.truth["host_of_rank"])), encoding="utf-8")
    return path


def judge(case, name, jobs, bad=wrong, options=()):
    """Reports how many of the jobs were diagnosed right."""
    right, first_fault = 0, ""
    for arguments in jobs:
        with Job(*arguments) as job:
            fault = bad(job.diagnosis("--hosts", hosts_file(job), *options).get("verdict"), job.truth)
        right += not fault
        if fault and not first_fault:
            first_fault = f"make_job {' '.join(map(str, arguments))}: {fault}"
    case.report(right, "==", len(jobs), n=len(jobs), name=name, note=first_fault)


def culprit_cases(room, seeds):
    for fault, topologies in TOPOLOGIES.items():
        name = f"culprit right: {fault}" if fault != "none" else "no culprit in clean jobs"

        @room.case(name)
        def culprit(case, fault=fault, topologies=topologies, name=name):
            judge(case, name, [("--topology", topology, "--fault", fault, "--seed", seed, "--steps", STEPS)
                               for topology in topologies for seed in range(1, seeds + 1)])

    @room.case("no culprit in clean pipelines and hybrid sharding")
    def more_clean(case):
        judge(case, case.name, [("--topology", topology, "--seed", seed, "--steps", STEPS)
                                for topology in ("pipeline", "hsdp") for seed in range(1, seeds + 1)])

    @room.case("culprit right: one rank of a pipeline")
    def pipelines(case):
        judge(case, case.name, [("--topology", "pipeline", "--fault", fault, "--seed", seed, "--steps", STEPS)
                                for fault in RANK_FAULTS for seed in range(1, min(seeds, 2) + 1)])


def pattern_cases(room, seeds):
    def pattern_wrong(verdict, truth):
        found = (verdict or {}).get("pattern")
        return "" if found == truth["pattern"] else f"pattern {found}, not {truth['pattern']}"

    def rank_wrong(verdict, truth):
        known = truth["verdict"]["rank"]
        if known is None:
            found = (verdict or {}).get("rank")
            return f"rank {found} blamed" if found is not None else ""
        return "" if (verdict or {}).get("rank") == known else f"rank {(verdict or {}).get('rank')}, not {known}"

    for pattern in ("persistent", "rotating", "outlier"):
        @room.case(f"pattern told: {pattern}")
        def told(case, pattern=pattern):
            jobs = [("--topology", topology, "--fault", fault, "--pattern", pattern, "--seed", seed, "--steps", 8)
                    for topology in ("ddp", "fsdp2") for fault in ("host_pause", "clock") for seed in range(1, seeds + 1)]
            judge(case, case.name, jobs, lambda verdict, truth: "; ".join(
                filter(None, [pattern_wrong(verdict, truth), rank_wrong(verdict, truth)])))

    @room.case("pattern not guessed from fewer than 5 steps")
    def too_few(case):
        def guessed(verdict, _):
            found = (verdict or {}).get("pattern")
            return "" if found == "unknown" else f"pattern {found}, not unknown"
        judge(case, case.name, [("--fault", "host_pause", "--seed", seed, "--steps", 3) for seed in range(1, seeds + 1)],
              guessed)


def group_faults(diagnosis, truth):
    """Groups of which a collective is missing, incomplete or not theirs; sends and receives not counted."""
    found = collections.Counter((tuple(sorted(row["members"])), row["group"].rpartition(" as ")[2])
                                for row in diagnosis["collectives"] if row["name"] != "send_recv")
    known = {(tuple(group["ranks"]), group["name"]): group["collectives"] for group in truth["groups"]
             if group["collectives"]}
    return [key for key in {*found, *known} if found.get(key, 0) != known.get(key, 0)]


def group_cases(room, _):
    variants = {"rank lists cut": (),
                "cut, no Seq, no rank start and stride": ("--no-seq", "--no-global-ranks"),
                "cut, nothing else tells the ranks": ("--no-seq", "--no-global-ranks", "--no-group-config"),
                "cut, arguments on record_param_comms alone": ("--no-kernel-args", "--no-seq"),
                "whole lists, names of their own": ("--whole-lists", "--own-names")}
    for name, options in variants.items():
        @room.case(f"groups of 64 ranks right: {name}")
        def groups(case, options=options):
            wrong_groups, count = 0, 0
            for topology in ("ddp", "fsdp2", "hsdp", "tp_fsdp", "pipeline"):
                hosts = ("--shard-hosts", 4) if topology in ("hsdp", "tp_fsdp") else ()
                with Job("--topology", topology, "--ranks", 64, "--steps", 2, "--layers", 4, *hosts, *options) as job:
                    count += len(job.truth["groups"])
                    wrong_groups += len(group_faults(job.diagnosis(), job.truth))
            case.report(wrong_groups, "==", 0, n=count)

    @room.case("kernels of every library make the same groups")
    def kernels(case):
        wrong_groups, count = 0, 0
        for names in ("nccl_dev", "nccl", "nccl_symmetric", "rccl"):
            with Job("--topology", "hsdp", "--steps", 2, "--kernels", names) as job:
                count += len(job.truth["groups"])
                wrong_groups += len(group_faults(job.diagnosis(), job.truth))
        case.report(wrong_groups, "==", 0, n=count)


def layout_cases(room, _):
    @room.case("file layouts: rank named in each")
    def layouts(case):
        jobs = [("--fault", "host_op", "--seed", 3, "--steps", STEPS, "--layout", layout)
                for layout in ("flat", "torchtitan", "tensorboard", "brackets", "merged")]
        judge(case, case.name, jobs)


def first_word_and_end(command, word, timeout=600):
    """Seconds until `word` appears on the terminal that is standard error, and until the end."""
    leader, follower = pty.openpty()
    begin = time.monotonic()
    run = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    first, text = None, b""
    while time.monotonic() - begin < timeout:
        ready, _, _ = select.select([leader], [], [], 0.05)
        if ready:
            try:
                part = os.read(leader, 65536)
            except OSError:
                break
            text = (text + part)[-4096:]
            if first is None and word in text.lower():
                first = time.monotonic() - begin
        elif run.poll() is not None:
            break
    run.wait()
    os.close(leader)
    return first, time.monotonic() - begin, run.returncode


def large_cases(room, _):
    @room.case("64 ranks x 54 MB")
    def raw(case):
        with Job("--topology", "hsdp", "--ranks", 64, "--steps", 10, "--events", 220_000, "--fault", "clock",
                 "--seed", 4) as job:
            size = job.truth["bytes"]
            case.report(size / 1e9, ">=", 3.3, unit="GB", name="64 ranks x 54 MB: size of the traces")
            command = [lib.COMMAND, "diagnose", job.traces(), "--hosts", hosts_file(job)]
            first, wall, status = first_word_and_end(command, b"verdict")
            if status != 0:
                raise RuntimeError(f"diagnose ended with {status}")
            case.report(first, "<=", 15.0, unit="s", name="64 ranks x 54 MB: first verdict")
            case.report(wall, "<=", 45.0, unit="s", name="64 ranks x 54 MB: all", note=f"{os.cpu_count()} cores")
            usage = lib.measure(command)
            case.report(usage.peak_bytes / 1e9, "<=", 1.0, unit="GB", name="64 ranks x 54 MB: peak memory",
                        note=f"{usage.seconds:.1f} s CPU")
            case.report(wrong(job.diagnosis("--hosts", hosts_file(job)).get("verdict"), job.truth) or "right", "==",
                        "right", name="64 ranks x 54 MB: culprit")

    @room.case("512 ranks x 20k events")
    def many(case):
        with Job("--topology", "tp_fsdp", "--ranks", 512, "--steps", 5, "--events", 24_000, "--fault", "host_pause",
                 "--seed", 4) as job:
            usage = lib.measure([lib.COMMAND, "diagnose", job.traces(), "--hosts", hosts_file(job)])
            if usage.status != 0:
                raise RuntimeError(f"diagnose ended with {usage.status}")
            case.report(usage.peak_bytes / 1e6, "<=", 300 + 0.2 * 512, unit="MB", name="512 ranks: peak memory",
                        note=f"{usage.wall:.1f} s, {job.truth['events']} events")
            saved = job.folder / "saved"
            diagnosis = job.diagnosis("--hosts", hosts_file(job), "--save", saved)
            case.report(wrong(diagnosis.get("verdict"), job.truth) or "right", "==", "right", name="512 ranks: culprit")
            case.report(saved.stat().st_size / 1e6, "<=", 1.0, unit="MB", name="512 ranks: size of the saved baseline")


    @room.case("a 5 GB trace of one rank: peak memory")
    def five_gigabytes(case):
        trace.report_five_gigabytes(case, lib.COMMAND, "diagnose")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    room = lib.Room("diagnose")
    every = room.case
    room.case = lambda name: every(name) if options.only in name else (lambda function: function)
    for cases in (group_cases, layout_cases, culprit_cases, pattern_cases, large_cases, diagnose_compare.add_cases):
        cases(room, options.seeds)
    diagnose_excerpt.add_cases(room, options.seeds, Job, hosts_file, TOPOLOGIES)
    diagnose_record.add_cases(room)
    diagnose_page.add_cases(room)
    room.finish()


if __name__ == "__main__":
    main()
