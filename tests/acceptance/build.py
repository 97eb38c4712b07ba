"""How long a newcomer waits: a clean clone, built and tested, without and with a filled compiler cache.

Not a room: make acceptance ROOM=build. There is no bound but that it works; the times are printed."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import lib


def build_and_test(clone, cache):
    """Seconds of `make test` from nothing."""
    shutil.rmtree(clone / "build", ignore_errors=True)
    begin = time.monotonic()
    run = subprocess.run(["make", "test"], cwd=clone, env=dict(os.environ, CCACHE_DIR=str(cache)),
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if run.returncode != 0:
        raise RuntimeError(f"make test failed: {run.stdout[-2000:]}{run.stderr[-500:]}")
    return time.monotonic() - begin


def main():
    room = lib.Room("build")

    @room.case("clean clone, built and tested, cold cache")
    def clean_clone(case):
        with tempfile.TemporaryDirectory() as folder:
            clone, cache = pathlib.Path(folder, "clone"), pathlib.Path(folder, "cache")
            subprocess.run(["git", "clone", "-q", str(lib.ROOT), str(clone)], check=True)
            case.report(build_and_test(clone, cache), ">", 0.0, unit="s")
            case.report(build_and_test(clone, cache), ">", 0.0, unit="s", name="the same, warm cache")

    room.finish()


if __name__ == "__main__":
    main()
