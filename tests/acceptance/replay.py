"""What the replay room must show, each figure against its bound."""
import json
import subprocess

import lib
import replay_graph

room = lib.Room("replay")
MEASURE = lib.BUILD / "tests" / "straggler_measure"


def measure(path):
    run = subprocess.run([str(MEASURE), str(path)], capture_output=True, text=True, timeout=600, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"straggler_measure {path}: {run.stderr.strip()}")
    return json.loads(run.stdout)


# ---------------------------------------------------------------- StragglerAnalysis
# Production jobs and the results that ByteDance-Seed/StragglerAnalysis@8efcd7f stores for them.


def worst(pairs):
    """The largest distance, None when something is missing on either side."""
    distances = [None if ours is None or theirs is None else abs(ours - theirs) for ours, theirs in pairs]
    return None if not distances or None in distances else max(distances)


def by_key(ours, theirs):
    return [(ours.get(key), theirs.get(key)) for key in sorted(set(ours) | set(theirs))]


def straggler_job(case, job):
    folder = lib.data("megascale/straggler_analysis")
    timeline = folder / f"timeline-{job}.json.gz"
    expected = json.loads((folder / f"result-{job}.json").read_text(encoding="utf-8"))
    m_w = json.loads((folder / f"mw-{job}.json").read_text(encoding="utf-8"))["Mw"]
    m_s = json.loads((folder / f"ms-{job}.json").read_text(encoding="utf-8"))["Ms"]
    ours = measure(timeline)
    data = [timeline, folder / f"result-{job}.json", folder / f"mw-{job}.json", folder / f"ms-{job}.json"]

    def report(value, bound, what, n, unit="", note=""):
        case.report(value, "<=", bound, n=n, data=data, unit=unit, name=f"{job}: {what}", note=note)

    for field, stored in (("ideal_s", "step_t_noblk"), ("without_delays_s", "step_t_nodelay"),
                          ("recorded_s", "step_t_base")):
        pairs = by_key({step: times[field] for step, times in ours["steps"].items()}, expected[stored])
        relative = [(mine and theirs and mine / theirs, theirs and 1.0) for mine, theirs in pairs]
        distance = worst(relative)
        report(None if distance is None else 100 * distance, 0.5, f"step times, {stored}", len(pairs), unit="%")
    report(abs(ours["slowdown"] - expected["blocking_slowdown"]), 0.005, "S", 1, note=f"S {ours['slowdown']:.4f}")
    for what, mine, stored in (("S_t", "groups", "optype"), ("S_w of dp ranks", "dp rank", "dp_rank"),
                               ("S_w of stages", "stage", "stage")):
        pairs = by_key(ours[mine], expected[f"blocking_decompose_by_{stored}"])
        report(worst(pairs), 0.01, what, len(pairs))
    report(abs(ours["worst_share"] - m_w), 0.02, "M_W", 1, note=f"{ours['worst_share']:.3f}, worst {ours['worst']}")
    report(abs(ours["last_share"] - m_s), 0.02, "M_S", 1, note=f"{ours['last_share']:.3f}")
    rate = ours["events"] / ours["replay_s"] / 1e6
    case.report(rate, ">", 1.0, n=ours["events"], data=[timeline], unit="M events/s", name=f"{job}: replay on one core",
                note=f"reading and graph {ours['read_s']:.3f} s, all what-ifs {ours['analysis_s']:.3f} s")


for JOB in ("AR", "ST"):
    @room.case(f"StragglerAnalysis {JOB}")
    def straggler_analysis(case, job=JOB):
        straggler_job(case, job)


replay_graph.add_cases(room)
room.finish()
