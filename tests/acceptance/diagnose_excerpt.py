"""Cases of `convert --finding`: the excerpt of every finding of simulated jobs, diagnosed again."""
import gzip
import pathlib
import re
import subprocess
import tempfile

import lib

# Names that may stay: the rules go by them, and they are PyTorch's and the vendors' own.
PUBLIC = re.compile(r"ProfilerStep#\d+|record_param_comms|(cuda|hip|cu)[A-Z]\w*|(nccl|gloo|c10d):+\w+|nccl\w*Kernel\w*")


def names_in(folder):
    """Names of operators, annotations, kernels and calls in the traces of a job."""
    names = set()
    for file in pathlib.Path(folder).rglob("*.json"):
        if file.name != "truth.json":
            names.update(event["name"] for event in lib.json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
                         if event.get("ph") == "X")
    return {name for name in names if not PUBLIC.fullmatch(name) and not name.startswith("nccl")}


def size_of(folder):
    return sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*") if file.is_file())


def judge_excerpt(job, hosts, finding, names, anonymise):
    """('' or what is wrong, bytes) of the excerpt of one finding."""
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent, "excerpt")
        run = subprocess.run([str(lib.COMMAND), "convert", str(job.folder), str(folder), "--finding", finding["id"], "--hosts",
                              str(hosts), *(["--anonymise"] if anonymise else [])], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=600, check=False)
        if run.returncode != 0:
            return f"convert ended with {run.returncode}: {run.stderr.strip()}", 0
        again = lib.paceline("diagnose", folder).json["findings"]
        keys = ["kind", "class", "pattern", "rank"] + ([] if anonymise else ["host"])
        if not any(all(other.get(key) == finding.get(key) for key in keys) for other in again):
            return f"not among {', '.join(other['kind'] for other in again)}", 0
        text = "".join(gzip.decompress(file.read_bytes()).decode() for file in folder.iterdir())
        left = sorted(name for name in names if f'"{name}"' in text) if anonymise else []
        return f"names left: {', '.join(left)}" if left else "", size_of(folder)


def add_cases(room, seeds, make, hosts_file, faults):
    """`make(*options)` is a context that gives a job; `faults` the topologies of each fault."""
    @room.case("excerpts that yield their finding again")
    def excerpts(case):
        right, count, sizes, shares, first_fault = 0, 0, [], [], ""
        for fault, topologies in faults.items():
            for topology in topologies:
                for seed in range(1, min(seeds, 2) + 1):
                    with make("--topology", topology, "--fault", fault, "--seed", seed, "--steps", 6) as job:
                        hosts = hosts_file(job)
                        names, whole = names_in(job.folder), size_of(job.folder)
                        for finding in job.diagnosis("--hosts", hosts)["findings"]:
                            wrong, size = judge_excerpt(job, hosts, finding, names, anonymise=count % 2 == 1)
                            count += 1
                            right += not wrong
                            sizes.append(size)
                            shares.append(size / whole)
                            if wrong and not first_fault:
                                first_fault = f"{topology}, {fault}, seed {seed}, {finding['id']} {finding['kind']}: {wrong}"
        case.report(right, "==", count, n=count, note=first_fault)
        case.report(sorted(sizes)[count // 2] / 1e3, "<=", 200.0, unit="kB", n=count, name="excerpts: size, the median",
                    note=f"largest {max(sizes) / 1e3:.0f} kB; {100 * sorted(shares)[count // 2]:.1f} % of the unpacked traces")
