"""Acceptance of replay on recorded jobs and random graphs: how well a job's task graph replays, and how fast."""
import json
import pathlib
import statistics
import subprocess
import tempfile

import lib

MEASURE = lib.BUILD / "tests" / "replay_measure"
MAKE_JOB = lib.BUILD / "tests" / "make_job"
GPU_SETS = {"8-rank DLRM": "dpro/param/dlrm_kineto.tar.gz"}
GLOO_SETS = ("coll_w4", "mlp_w2_b0p4", "mlp_w2_b1", "mlp_w2_b1_accum3", "mlp_w2_b1_straggler1_20ms", "mlp_w2_b25",
             "tfm_w2_b0p5", "tfm_w4_b0p5")
TOPOLOGIES = ("ddp", "fsdp1", "fsdp2", "hsdp", "tp_fsdp", "pipeline")


def measure(*arguments, timeout=1200):
    run = subprocess.run([str(MEASURE), *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                         stdin=subprocess.DEVNULL, check=False)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    return json.loads(run.stdout)


def jobs():
    """(name, data path, what replay_measure says) of every recorded job with several ranks."""
    for name, path in GPU_SETS.items():
        yield name, lib.data(path), measure("job", lib.data(path))
    for name in GLOO_SETS:
        path = lib.data(f"dpro/recorded/{name}")
        yield name, path, measure("job", path)


def unmodified_cases(room):
    @room.case("unmodified replay of every set with several ranks")
    def unmodified(case):
        errors, baselines, starts, data, unexplained, exact, agree, count = [], {"dpro": [], "daydream": []}, {}, [], [], 0, 0, 0
        for name, path, job in jobs():
            data.append(path)
            count += 1
            errors += job["step_errors"]
            for mode, of_mode in baselines.items():
                of_mode += job[mode]["step_errors"]
            starts[name] = job["median_start_error_us"]
            unexplained.append(job["unexplained_on_path"])
            exact += job["makespan_ns"] == job["path_ns"]
            agree += job["engines_agree"]
        steps = len(errors)
        case.report(100 * statistics.mean(errors), "<=", 1.0, unit="%", n=steps, data=data, name="step error, mean")
        case.report(100 * max(errors), "<=", 3.0, unit="%", n=steps, data=data, name="step error, largest")
        for mode, title in (("dpro", "no edges between streams (dPRO)"), ("daydream", "ranks alone (Daydream)")):
            case.report(100 * statistics.mean(baselines[mode]), ">=", 100 * statistics.mean(errors), unit="%", n=steps,
                        data=data, name=f"step error, mean, {title}")
        case.report(max(starts[name] for name in GPU_SETS), "<=", 20.0, unit="us", data=data,
                    name="median start error of an operation, GPU sets",
                    note=f"gloo sets {max(starts[name] for name in GLOO_SETS):.1f} us")
        case.report(100 * max(unexplained), "<=", 10.0, unit="%", n=count, data=data,
                    name="unexplained gaps on the critical path, largest")
        case.report(exact, "==", count, n=count, data=data, name="critical path = makespan, to the ns")
        case.report(agree, "==", count, n=count, data=data, name="both engines give the same ends")

    @room.case("structure of step i, operations of step j, median gaps")
    def cross(case):
        path = lib.data("dpro/hta/df_index_resolver")
        job = measure("job", path)
        case.report(100 * statistics.mean(job["cross_errors"]), "<=", 3.0, unit="%", n=len(job["cross_errors"]), data=[path],
                    name="step j from step i, mean error, df_index_resolver",
                    note=f"taking step i as it is: {100 * statistics.mean(job['naive_errors']):.1f} %")
        errors, naive, data = [], [], []
        for name in GLOO_SETS:
            gloo = lib.data(f"dpro/recorded/{name}")
            one = measure("job", gloo)
            data.append(gloo)
            errors += one.get("cross_errors", [])
            naive += one.get("naive_errors", [])
        case.report(100 * statistics.mean(errors), "<=", 3.0, unit="%", n=len(errors), data=data,
                    name="step j from step i, mean error, gloo sets (recorded at load 11 to 15)",
                    note=f"taking step i as it is: {100 * statistics.mean(naive):.1f} %")


def truth_cases(room):
    @room.case("repair of a slow rank against the healthy job")
    def repair(case):
        errors, edges = [], 0
        for topology in TOPOLOGIES:
            for seed in (3, 4):
                with tempfile.TemporaryDirectory() as folder:
                    subprocess.run([str(MAKE_JOB), "--out", folder, "--topology", topology, "--fault", "clock", "--seed",
                                    str(seed), "--steps", "6"], check=True, capture_output=True)
                    truth = json.loads(pathlib.Path(folder, "truth.json").read_text(encoding="utf-8"))
                    edit = f"kernel:*@{truth['verdict']['rank']}=x{1 / truth['factor']}"
                    result = lib.paceline("replay", folder, "--set", edit)
                    if result.status != 0:
                        raise RuntimeError(result.err.strip())
                    errors.append(abs(result.json["after"]["ns"] / truth["clean_step_ns"] - 1))
                    edges += result.json["graph"]["inferred"]
        case.report(100 * statistics.mean(errors), "<=", 5.0, unit="%", n=len(errors),
                    name="predicted against the job without the fault, mean error",
                    note=f"6 topologies; published: Lumos 3.3 %, dPRO 14 %; largest {100 * max(errors):.2f} %")


def engine_cases(room):
    @room.case("both engines = the naive simulator on random graphs")
    def random_graphs(case):
        result = measure("random", 1_000_000)
        case.report(result["wrong"], "==", 0, n=result["graphs"] - result["stuck"],
                    note=f"seeds 1 to {result['graphs']}; {result['stuck']} let collectives wait for ever, as they must")

    @room.case("replay(graph, edit) = replay(apply(graph, edit)) on random edits")
    def edits(case):
        result = measure("edits", 120_000)
        case.report(result["wrong"], "==", 0, n=result["edits"] - result["circles"],
                    note=f"{result['circles']} edits make a circle and are refused")

    @room.case("speed")
    def speed(case):
        best = min((measure("speed") for _ in range(3)), key=lambda run: run["whole_ms"])
        case.report(best["whole_ms"], "<=", 150.0, unit="ms", name=f"full replay of {best['tasks'] / 1e6:.1f} M tasks, CPU")
        case.report(best["eight_variants_ms"] / best["one_variant_ms"], "<=", 2.5, unit="x",
                    name="8 variants against one")
        case.report(best["edit_ms"], "<=", 2.0, unit="ms", name="edit of one task, median", n=301)


def add_cases(room):
    for cases in (unmodified_cases, truth_cases, engine_cases):
        cases(room)
