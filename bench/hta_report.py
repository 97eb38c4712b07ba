#!/usr/bin/env python3
"""Runs HolisticTraceAnalysis on trace files and prints its figures as JSON.

Serves the comparison tests and benchmarks only: the product itself never
imports this.  Needs the packages of bench/peers.txt (see setup_peers.sh).

usage: hta_report.py PATH... [--json] [--variant both|default|include-last]
                     [--serial] [--ranks N[,N...]]

A PATH is a trace (.json, .json.gz), a directory of rank files, or a tar of
them (.tar, .tar.gz, .tgz).  All PATHs together are one job.  Times are in
microseconds as the peer reports them; *_s are seconds of wall clock.
"""
import argparse
import glob
import gzip
import json
import logging
import math
import os
import re
import resource
import shutil
import sys
import tarfile
import tempfile
import time

RANK_RE = re.compile(r'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
NAME_RE = re.compile(r"(?:rank|worker)[-_]?(\d+)")
TRACE_SUFFIXES = (".json", ".json.gz")


def expand(paths, scratch):
    """All trace files meant by the given paths, in a stable order."""
    files = []
    for path in paths:
        if os.path.isdir(path):
            found = sorted(p for s in TRACE_SUFFIXES
                           for p in glob.glob(os.path.join(path, "**", "*" + s), recursive=True))
            if not found:
                raise SystemExit(f"hta_report: no trace files in {path}")
            files += found
        elif re.search(r"\.(tar|tar\.gz|tgz)$", path):
            where = tempfile.mkdtemp(dir=scratch)
            with tarfile.open(path) as tar:
                for member in tar.getmembers():
                    if member.isfile() and member.name.endswith(TRACE_SUFFIXES):
                        member.name = os.path.basename(member.name)
                        tar.extract(member, where, set_attrs=False)
            files += expand([where], scratch)
        elif os.path.isfile(path):
            files.append(path)
        else:
            raise SystemExit(f"hta_report: no such file: {path}")
    return files


def rank_of(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as handle:
        found = RANK_RE.search(handle.read())
    if found:
        return int(found.group(1))
    found = NAME_RE.search(os.path.basename(path))
    return int(found.group(1)) if found else None


def by_rank(files):
    ranks, unranked = {}, []
    for path in files:
        rank = rank_of(path)
        if rank is None or rank in ranks:
            unranked.append(path)
        else:
            ranks[rank] = os.path.abspath(path)
    free = 0
    for path in unranked:
        while free in ranks:
            free += 1
        ranks[free] = os.path.abspath(path)
    return dict(sorted(ranks.items()))


def plain(value):
    """A value json.dumps can write: no numpy scalars, NaN becomes None."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return None
        if value.is_integer() and abs(value) < 2 ** 53:
            return int(value)
    return value


def rows(frame):
    return [{str(k): plain(v) for k, v in row.items()} for row in frame.to_dict("records")]


def guarded(call):
    """(result, None) or (None, one line saying what the peer raised)."""
    start = time.perf_counter()
    try:
        return call(), None, time.perf_counter() - start
    except Exception as problem:  # the peer raises all sorts on odd traces
        text = " ".join(str(problem).split())[:200]
        return None, f"{type(problem).__name__}: {text}", time.perf_counter() - start


def kernel_counts(frame, symbols):
    gpu = frame[frame["stream"].ne(-1)]
    return {symbols[i]: int(n) for i, n in gpu.groupby("name")["dur"].count().items()}


def analyse(hta_class, ranks, include_last, serial):
    report = {"include_last_profiler_step": include_last, "ranks": {}, "errors": {}, "seconds": {}}
    start = time.perf_counter()
    if serial:
        from hta.common.trace import Trace
        loader = Trace.parse_traces

        def one_process(self, max_ranks=-1, use_multiprocessing=True, use_memory_profiling=True):
            return loader(self, max_ranks, False, False)
        Trace.parse_traces = one_process
    try:
        job = hta_class(trace_files=dict(ranks), trace_dir="/",
                        include_last_profiler_step=include_last)
    except Exception as problem:
        report["errors"]["load"] = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
        report["load_s"] = round(time.perf_counter() - start, 4)
        return report
    finally:
        if serial:
            Trace.parse_traces = loader
    report["load_s"] = round(time.perf_counter() - start, 4)

    def run(name, call):
        value, problem, seconds = guarded(call)
        report["seconds"][name] = round(seconds, 4)
        if problem:
            report["errors"][name] = problem
        return value

    symbols = job.t.symbol_table.get_sym_table()
    # As the peer gives them to other callers: get_temporal_breakdown and its
    # siblings work on every rank at once, the last two per list of ranks.
    all_ranks = sorted(job.t.traces)
    out = {r: {} for r in all_ranks}
    for r in all_ranks:
        frame = job.t.traces[r]
        out[r]["events_kept"] = len(frame)
        out[r]["gpu_events_kept"] = int(frame["stream"].ne(-1).sum()) if "stream" in frame else 0

    temporal = run("temporal_breakdown", lambda: job.get_temporal_breakdown(visualize=False))
    if temporal is not None:
        for row in rows(temporal):
            out[row["rank"]].update({
                "idle_us": row["idle_time(us)"], "compute_us": row["compute_time(us)"],
                "non_compute_us": row["non_compute_time(us)"], "kernel_time_us": row["kernel_time(us)"],
                "idle_pct": row["idle_time_pctg"], "compute_pct": row["compute_time_pctg"],
                "non_compute_pct": row["non_compute_time_pctg"]})

    overlap = run("comm_comp_overlap", lambda: job.get_comm_comp_overlap(visualize=False))
    if overlap is not None:
        for row in rows(overlap):
            out[row["rank"]]["comm_comp_overlap_pct"] = row["comp_comm_overlap_pctg"]

    def kernel_rows(frame):
        table = {r: [] for r in all_ranks}
        for row in rows(frame):
            table[row["rank"]].append({
                "name": row["name"], "type": row["kernel_type"], "sum_us": row["sum (us)"],
                "mean_us": row["mean (us)"], "min_us": row["min (us)"], "max_us": row["max (us)"],
                "stddev": row["stddev"]})
        return table

    full = run("gpu_kernel_breakdown",
               lambda: job.get_gpu_kernel_breakdown(visualize=False, num_kernels=10 ** 9))
    if full is not None:
        report["kernel_types"] = rows(full[0])
        for r, table in kernel_rows(full[1]).items():
            counts = kernel_counts(job.t.traces[r], symbols)
            for row in table:
                row["count"] = counts.get(row["name"])
            out[r]["kernels"] = table
    short = run("gpu_kernel_breakdown_top10", lambda: job.get_gpu_kernel_breakdown(visualize=False))
    if short is not None:
        for r, table in kernel_rows(short[1]).items():
            out[r]["kernels_top10"] = table

    for r in all_ranks:
        idle = run(f"idle_time_breakdown[{r}]",
                   lambda: job.get_idle_time_breakdown(ranks=[r], visualize=False))
        if idle is not None:
            out[r]["idle_split"] = [
                {"stream": row["stream"], "category": row["idle_category"],
                 "idle_us": row["idle_time"], "ratio": row["idle_time_ratio"]}
                for row in rows(idle[0])]
        queue = run(f"queue_length_summary[{r}]", lambda: job.get_queue_length_summary(ranks=[r]))
        if queue is not None:
            table = []
            for (_, stream), row in queue.iterrows():
                entry = {"stream": plain(stream)}
                entry.update({str(k[-1]): plain(v) for k, v in row.items()})
                table.append(entry)
            out[r]["queue_length"] = table
    report["ranks"] = {str(r): out[r] for r in all_ranks}
    return report


def main():
    parser = argparse.ArgumentParser(description="HolisticTraceAnalysis figures as JSON")
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--json", action="store_true", help="one compact line (default: indented)")
    parser.add_argument("--variant", choices=("both", "default", "include-last"), default="both")
    parser.add_argument("--serial", action="store_true", help="parse the ranks in this process")
    parser.add_argument("--ranks", help="only these ranks, comma separated")
    args = parser.parse_args()

    scratch = tempfile.mkdtemp(prefix="hta_report.")
    try:
        ranks = by_rank(expand(args.paths, scratch))
        if args.ranks:
            wanted = {int(r) for r in args.ranks.split(",")}
            ranks = {r: p for r, p in ranks.items() if r in wanted}
        if not ranks:
            raise SystemExit("hta_report: no ranks left to analyse")
        start = time.perf_counter()
        import warnings
        warnings.filterwarnings("ignore")
        try:
            import hta.version
            from hta.trace_analysis import TraceAnalysis
        except ImportError as problem:
            raise SystemExit(f"hta_report: {problem} (run bench/setup_peers.sh, then its python)")
        logging.disable(logging.CRITICAL)
        import_s = time.perf_counter() - start
        version = None
        from importlib import metadata
        for name in ("traceinsight", "HolisticTraceAnalysis"):
            try:
                version = f"{name} {metadata.version(name)}"
                break
            except metadata.PackageNotFoundError:
                pass
        report = {"tool": "HolisticTraceAnalysis", "version": version,
                  "python": sys.version.split()[0], "pandas": metadata.version("pandas"),
                  "files": {str(r): os.path.basename(p) for r, p in ranks.items()},
                  "import_s": round(import_s, 4), "variants": {}}
        kinds = {"both": (False, True), "default": (False,), "include-last": (True,)}[args.variant]
        for include_last in kinds:
            name = "include_last" if include_last else "default"
            report["variants"][name] = analyse(TraceAnalysis, ranks, include_last, args.serial)
        report["load_s"] = report["variants"][name if len(kinds) == 1 else "default"]["load_s"]
        report["peak_rss_kib"] = {
            "self": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "largest_child": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if args.json:
        print(json.dumps(report, separators=(",", ":")))
    else:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
