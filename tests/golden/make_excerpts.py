"""Makes tests/golden/excerpts/ anew: anonymised excerpts of the verdicts of generated jobs, as a user would share them.

    make_excerpts.py PATH_TO_PACELINE PATH_TO_MAKE_JOB

They stand for themselves: what the generator or the excerpt does later changes nothing of them, what diagnose says of
them is the test. Read the difference of the figures before you commit new ones.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().with_name("excerpts")
JOBS = {"fsdp2_clock": ("--topology", "fsdp2", "--fault", "clock", "--layers", "2", "--seed", "1")}


def run(*command):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout


def main(paceline, make_job):
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name, options in JOBS.items():
        with tempfile.TemporaryDirectory() as parent:
            job = pathlib.Path(parent, "job")
            run(make_job, "--out", job, *options, "--ranks", 8, "--steps", 6)
            result = json.loads(run(paceline, "diagnose", job, "--json"))
            verdict = next(finding["id"] for finding in result["findings"] if finding["title"] == result["verdict"]["title"])
            run(paceline, "convert", job, FOLDER / name, "--finding", verdict, "--anonymise")


if __name__ == "__main__":
    main(*(pathlib.Path(argument).resolve() for argument in sys.argv[1:3]))
