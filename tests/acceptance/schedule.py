#!/usr/bin/env python3
"""schedule: simulators against published numbers, policies against each other, speed."""
import csv
import json
import statistics

import lib

room = lib.Room("schedule")

POLLUX = "dl2/pollux"
DL2 = "dl2/dl2"


def simulate(workloads, *options):
    run = lib.paceline("schedule", "simulate", *workloads, *options)
    if run.status != 0:
        raise RuntimeError(run.err.strip())
    return run.json


def published(policy, load):
    return json.loads(lib.data(f"{POLLUX}/result-jobload-{policy}-{load}.json").read_text(encoding="utf-8"))["avgs"]


def pollux_workloads(load):
    folder = lib.data(POLLUX) / ("workloads" if load == "1.0" else f"workloads-{load}")
    return sorted(folder.glob("workload-*.csv"))


def averages(result, policy):
    return {one["workload"].split("/")[-1][:-4]: one["average_completion_s"]
            for one in result["results"] if one["policy"] == policy}


def pollux_run(load, *policies):
    return simulate(pollux_workloads(load), "--profiles", lib.data(f"{POLLUX}/traces"), "--policy", ",".join(policies))


@room.case("Tiresias and Optimus, load 1.0")
def deterministic(case):
    files = pollux_workloads("1.0")
    result = pollux_run("1.0", "Tiresias", "Optimus")
    ours, theirs = averages(result, "Tiresias"), published("tiresias", "1.0")
    case.report(ours["workload-6"], "==", 3469.69375, data=[files[5]], unit="s", name="Tiresias workload-6",
                note=repr(ours["workload-6"]))
    case.report(ours["workload-1"], "==", 2473.65, data=[files[0]], unit="s", name="Tiresias workload-1")
    case.report(max(abs(ours[w] - theirs[w]) for w in ours), "<=", 0.01, n=len(ours), data=files, unit="s",
                name="Tiresias, largest difference from published, load 1.0")
    ours, theirs = averages(result, "Optimus"), published("optimus", "1.0")
    case.report(100 * abs(ours["workload-6"] / 5301.875 - 1), "<=", 0.1, data=[files[5]], unit="%",
                name="Optimus workload-6 from 5301.875 s", note=f"{ours['workload-6']:.5f} s")
    case.report(100 * max(abs(ours[w] / theirs[w] - 1) for w in ours), "<=", 1.0, n=len(ours), data=files, unit="%",
                name="Optimus, largest difference from published, load 1.0")


@room.case("Tiresias at other loads")
def loads(case):
    for load in ("0.5", "1.5", "2.0"):
        ours, theirs = averages(pollux_run(load, "Tiresias"), "Tiresias"), published("tiresias", load)
        case.report(100 * max(abs(ours[w] / theirs[w] - 1) for w in ours), "<=", 0.1, n=len(ours),
                    data=pollux_workloads(load), unit="%", name=f"Tiresias, largest difference, load {load}")


@room.case("Pollux and ours")
def pollux(case):
    files = pollux_workloads("1.0")
    theirs = published("pollux", "1.0")
    bar = statistics.mean(theirs.values())
    result = pollux_run("1.0", "Pollux", "Paceline")
    mean = statistics.mean(averages(result, "Pollux").values())
    case.report(100 * (mean / bar - 1), "<=", 5.0, n=len(files), data=files, unit="%",
                name="Pollux, mean above the published 2573.5 s", note=f"{mean:.1f} s")
    best = statistics.mean(averages(result, "Paceline").values())
    case.report(best, "<=", 2316.0, n=len(files), data=files, unit="s", name="our best elastic policy, mean",
                note="knows remaining steps and step times, as Optimus with its oracle")


def ps_traces():
    return sorted((lib.data(DL2) / "traces").glob("trace-*.csv"))


def ps_run(nodes, policies, *options):
    result = simulate(ps_traces(), "--profiles", lib.data(f"{DL2}/config_speed.txt.gz"), "--nodes", nodes, "--policy",
                      ",".join(policies), *options)
    return {(one["workload"].split("-")[-1][:-4].lstrip("0"), one["policy"]): one["average_completion_s"] / one["slot_s"]
            for one in result["results"] if one["jobs"]}


@room.case("DL2's simulator")
def dl2(case):
    table = lib.data(f"{DL2}/traces/results.csv")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    for nodes in sorted({row["nodes"] for row in rows}, key=int, reverse=True):
        wanted = [row for row in rows if row["nodes"] == nodes]
        ours = ps_run(nodes, sorted({row["policy"] for row in wanted}))
        worst = max(abs(ours[row["trace"], row["policy"]] / float(row["avg_jct_slots"]) - 1) for row in wanted)
        case.report(100 * worst, "<=", 1.0, n=len(wanted), data=[table], unit="%",
                    name=f"DL2 rules, largest difference, {nodes} nodes")


@room.case("speed")
def speed(case):
    files = pollux_workloads("1.0")
    usage = lib.cpu_time([lib.COMMAND, "schedule", "simulate", files[5], "--profiles", lib.data(f"{POLLUX}/traces"),
                          "--policy", "Tiresias"])
    case.report(usage.seconds, "<=", 0.2, data=[files[5]], unit="s", name="Tiresias on workload-6, CPU time", usage=usage)
    philly = lib.data(f"{POLLUX}/philly.csv.gz")
    usage = lib.cpu_time([lib.COMMAND, "schedule", "simulate", philly, "--nodes", 256, "--gpus-per-node", 8, "--policy",
                          "FIFO"], runs=3)
    case.report(usage.seconds, "<=", 10.0, data=[philly], unit="s", name="82k Philly jobs, FIFO, 2048 GPUs", usage=usage)
    case.report(usage.peak_bytes / 1e6, "<=", 500.0, data=[philly], unit="MB", name="the same, peak memory")


room.finish()
