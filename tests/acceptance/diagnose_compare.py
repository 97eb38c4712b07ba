"""Cases of compare: simulated pairs of runs, equal but for one fault; copies of real and simulated jobs with one change;
recorded pairs; and a run with itself."""
import pathlib
import subprocess
import tarfile
import tempfile

import edit_job
import lib

MAKE_JOB = lib.BUILD / "tests" / "make_job"

# The group of compare that a fault must show in.
GROUP_OF_FAULT = {"clock": "kernels", "memory_bandwidth": "kernels", "imbalance": "kernels", "host_op": "host",
                  "host_pause": "host", "input": "input", "allocator": "allocator", "issued_late": "communication"}
TOPOLOGIES = ("ddp", "fsdp2", "tp_fsdp")

# Changes of edit_job.Job and the groups of compare that they must show in. Where a pause falls into the fetching of a
# batch, fetching takes longer.
CHANGES = {"slow_kernels": {"kernels"}, "pause": {"host", "input"}, "late_start": {"host"}, "allocate": {"allocator"},
           "long_collective": {"communication"}, "serialise": {"communication"}}
# The DLRM job has 0.02 ms of overlap to remove. With gathers and scatters at once on two streams an edit cannot tell what
# would have waited for which: there the simulated fault "issued_late" removes the overlap.
NOT_CHANGED = {"dlrm": {"serialise"}, "fsdp2": {"serialise"}}


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

    @room.case("compare: DLRM, share charged to the changed cause, least")
    def dlrm(case):
        archive = lib.data("dpro/param/dlrm_kineto.tar.gz")
        with tempfile.TemporaryDirectory() as parent:
            with tarfile.open(archive) as tar:
                tar.extractall(parent)
            judge_changes(case, "dlrm", pathlib.Path(parent, "dlrm_kineto"), parent, [archive])

    for topology in ("ddp", "fsdp2"):
        @room.case(f"compare: {topology}, share charged to the changed cause, least")
        def generated(case, topology=topology):
            with tempfile.TemporaryDirectory() as parent:
                job = make_job(pathlib.Path(parent, "job"), "--topology", topology, "--clock-offset-ms", "0")
                judge_changes(case, topology, job, parent, [])

    @room.case("compare: recorded pair on a busy machine, first cause")
    def noisy_pair(case):
        folder = lib.data("dpro/recorded")
        pair = [folder / "mlp_w2_b1", folder / "mlp_w2_b1_straggler1_20ms"]
        result = comparison(*pair)
        first = result["changes"][0]
        case.report(f"{first['group']}, rank {first.get('rank')}", "==", "host, rank 1", data=pair,
                    note=f"{first['change_ns'] / 1e6:.1f} of {result['change_ns'] / 1e6:.1f} ms: {first['what']}")


def judge_changes(case, name, job, parent, data):
    """Every change of CHANGES on a copy of the job, against the copy without: least share, exact sums, renaming."""
    before = edit_job.Job(job).write(pathlib.Path(parent, "before"))
    shares, exact = {}, 0
    for change, groups in CHANGES.items():
        if change in NOT_CHANGED.get(name, ()):
            continue
        edited = edit_job.Job(job)
        getattr(edited, change)()
        result = comparison(before, edited.write(pathlib.Path(parent, change), overlap_stays=change != "serialise"))
        shares[change] = sum(row["change_ns"] for row in result["groups"] if row["group"] in groups) / result["change_ns"]
        exact += sum(row["change_ns"] for row in result["groups"]) + result["not_explained_ns"] == result["change_ns"]
    least = min(shares, key=shares.get)
    case.report(shares[least], ">=", 0.95, n=len(shares), data=data,
                note=", ".join(f"{change} {share:.3f}" for change, share in shares.items()))
    case.report(exact, "==", len(shares), n=len(shares), data=data, name=f"compare: {name}, exact to the nanosecond")
    renamed = edit_job.Job(job)
    renamed.rename(200)
    result = comparison(before, renamed.write(pathlib.Path(parent, "renamed")))
    case.report(sum(abs(row["change_ns"]) for row in result["changes"]), "==", 0, unit="ns", data=data,
                name=f"compare: {name}, 200 kernels renamed on each rank: changes")
