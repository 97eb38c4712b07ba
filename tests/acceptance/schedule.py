#!/usr/bin/env python3
"""schedule: simulators against published numbers, policies against each other, speed."""
import csv
import json
import math
import pathlib
import random
import statistics
import subprocess
import tempfile

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


LEARN = lib.BUILD / "libexec" / "paceline-learn"
SEEDS = range(1, 6)
LEARN_SECONDS = 30  # a seed and setting; 300 are allowed
RULES = ["DRF", "DRF-repaired", "Optimus", "Optimus-repaired", "Optimus-search"]


def learn(command, nodes, out, *options):
    run = subprocess.run([str(LEARN), command, "--speeds", str(lib.data(f"{DL2}/config_speed.txt.gz")), "--arrivals",
                          str(lib.data(f"{DL2}/arrival_patterns.json")), "--nodes", str(nodes), "--out", str(out),
                          *map(str, options)], capture_output=True, text=True, check=False, timeout=600)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    return json.loads(run.stdout)


def mean_of(result, policy):
    return statistics.mean(value for (_, name), value in result.items() if name == policy)


def interval(values):
    """Half of the 95 % t interval of five values."""
    return 2.776 * statistics.stdev(values) / math.sqrt(len(values))


@room.case("DL2 learned: warm-up")
def warm_up(case):
    with tempfile.TemporaryDirectory() as folder:
        result = learn("schedule-warm-up", 24, pathlib.Path(folder) / "warm.json", "--teacher", "DRF")
    case.report(100 * result["agreement"], ">=", 90.0, n=result["held_out_decisions"], unit="%",
                data=[lib.data(f"{DL2}/config_speed.txt.gz")], name="DL2's network agrees with its teacher, held out")


@room.case("DL2 learned: policy search")
def learned(case):
    traces = ps_traces()
    with tempfile.TemporaryDirectory() as folder:
        nets = {}
        for nodes in (24, 12):
            for seed in SEEDS:
                nets[nodes, seed] = pathlib.Path(folder) / f"{nodes}-{seed}.json"
                learn("schedule", nodes, nets[nodes, seed], "--seed", seed, "--seconds", LEARN_SECONDS)
        learned_of = lambda nodes, at, *options: [
            mean_of(ps_run(at, ["Learned"], "--learned", nets[nodes, seed], *options), "Learned") for seed in SEEDS]
        rules = ps_run(96, ["DRF", "Optimus", "Optimus-search", "Shortest-step"])
        bound = mean_of(ps_run(100000, ["Shortest-step"]), "Shortest-step")
        values = learned_of(24, 96)
        for rule, least in (("DRF", 44.1), ("Optimus", 17.5)):
            base = mean_of(rules, rule)
            below = [100 * (1 - value / base) for value in values]
            case.report(statistics.mean(below), ">=", least, n=len(below), data=traces, unit="%",
                        name=f"96 nodes, learned below {rule}",
                        note=f"+-{interval(below):.2f}; no-contention bound {100 * (1 - bound / base):.1f} %; "
                             f"{statistics.mean(values):.2f} slots, bound {bound:.2f}")
        for at, options in ((24, ()), (12, ()), (24, ("--slot", 60, "--restart", 30)), (12, ("--slot", 60, "--restart", 30))):
            rules = ps_run(at, RULES + ["Shortest-step"], *options)
            best = min(RULES, key=lambda rule: mean_of(rules, rule))
            values = learned_of(at, at, *options)
            below = [100 * (1 - value / mean_of(rules, best)) for value in values]
            start = [100 * (1 - value / mean_of(rules, "Shortest-step")) for value in values]
            what = f"{at} nodes" + (", 60-s slots, restart 30 s" if options else "")
            case.report(statistics.mean(below) - interval(below), ">=", 5.0, n=len(below), data=traces, unit="%",
                        name=f"{what}, learned below the best rule",
                        note=f"{statistics.mean(below):.2f} +-{interval(below):.2f} below {best}; "
                             f"{statistics.mean(start):.2f} +-{interval(start):.2f} below the rule it started from")


@room.case("histories")
def histories(case):
    with tempfile.TemporaryDirectory() as folder:
        history = pathlib.Path(folder) / "sacct.txt"
        made = lib.paceline("schedule", "generate", "--days", 30, "--nodes", 8, "--load", 0.9, "--seed", 7, as_json=False)
        history.write_text(made.out, encoding="utf-8")
        result = lib.paceline("schedule", "backtest", history, "--nodes", 8, "--policies", "current,FIFO").json
        jobs = made.out.count("\n") - 1
        for what in ("median_wait", "p90_wait"):
            case.report(100 * result["replay_error"][what], "<=", 5.0, n=jobs, unit="%", name=f"replay of a made month, {what}")
        rows = made.out.splitlines()[1:]
        asked = random.Random(1).sample([row.split("|")[0] for row in rows[len(rows) // 4:len(rows) * 3 // 4]], 200)
        etas = lib.paceline("schedule", "eta", *asked, "--history", history, "--nodes", 8, "--draws", 150).json["jobs"]
        for index, what in enumerate(("start", "end")):
            inside = sum(eta[f"{what}_s"][0] <= eta["happened_s"][index] <= eta[f"{what}_s"][2] for eta in etas)
            share = 100 * inside / len(etas)
            case.report(75 <= share <= 85, "==", True, n=len(etas), name=f"eta's 80 % band of the {what} holds in 75-85 %",
                        note=f"{share:.1f} %")


@room.case("bad input")
def bad_input(case):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bad.csv"
        path.write_text("name,time,application,num_replicas,batch_size\na,0,alexnet,1,128\nb,-5,cifar10,1,128\n"
                        "c,0,cifar10,999,128\nd,0,cifar10,1,128\n", encoding="utf-8")
        result = simulate([path], "--profiles", lib.data(f"{POLLUX}/traces"), "--policy", "Tiresias")["results"][0]
        lines = sorted(problem["where"].rsplit(":", 1)[1] for problem in result["problems"])
        case.report(lines == ["2", "3", "4"] and result["jobs"] == 1, "==", True, n=3,
                    name="unknown model, negative time, too large: lines named, the rest runs", note=" ".join(lines))


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
