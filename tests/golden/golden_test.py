"""`paceline diagnose` on bundled jobs against stored figures.

    golden_test.py PATH_TO_PACELINE            compare
    golden_test.py PATH_TO_PACELINE --write    store what it says now; read the difference before you commit it
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The excerpts are anonymised: make_excerpts.py.
JOBS = ["examples/slow_rank", *sorted(f"tests/golden/excerpts/{folder.name}"
                                      for folder in pathlib.Path(__file__).with_name("excerpts").iterdir())]


def summary(result):
    """The figures people look at; small enough to read as a difference."""
    return {
        "schema": result["schema"],
        "world_size": result["world_size"],
        "steps": result["steps"],
        "median_step_ns": result["median_step_ns"],
        "late_rank": result["late_rank"],
        "verdict": {key: result["verdict"][key] for key in ("kind", "class", "rank", "host", "pattern")},
        "findings": [{key: finding[key] for key in ("kind", "title", "cost_per_step_ns")}
                     for finding in result["findings"]],
        "causes": result["causes"],
        "ranks": [{"rank": rank["rank"], "times_last": rank["times_last"], "blame_ns": rank["blame_ns"],
                   "wait_per_step_ns": rank["wait_per_step_ns"], "transfer_per_step_ns": rank["transfer_per_step_ns"],
                   "events": rank["events"]["total"],
                   "repairs": {repair["repair"]: repair["count"] for repair in rank["repairs"]},
                   "mean_step": {key: value for key, value in rank["mean_step"].items() if key.endswith("_ns")}}
                  for rank in result["ranks"]],
        "collectives": len(result["collectives"]),
        "mismatches": result["mismatches"],
    }


def differences(expected, actual, path=""):
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys()):
            yield from differences(expected.get(key), actual.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, (left, right) in enumerate(zip(expected, actual)):
            yield from differences(left, right, f"{path}[{index}]")
    elif expected != actual:
        yield f"{path.lstrip('.')}: expected {json.dumps(expected)}, got {json.dumps(actual)}"


def main(arguments):
    found = 0
    for job in JOBS:
        stored = pathlib.Path(__file__).with_name(job.removeprefix("tests/golden/").replace("/", "_") + ".json")
        text = subprocess.run([str(pathlib.Path(arguments[0]).resolve()), "diagnose", job, "--json"], cwd=ROOT, check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        actual = summary(json.loads(text))
        if "--write" in arguments:
            stored.write_text(json.dumps(actual, indent=1) + "\n", encoding="utf-8")
            continue
        for difference in differences(json.loads(stored.read_text(encoding="utf-8")), actual):
            found += 1
            print(f"{job}: {difference}")
    if found:
        print(f"{found} differences; when they are right: {' '.join(['tests/golden/golden_test.py', arguments[0], '--write'])}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
