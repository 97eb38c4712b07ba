"""Cases of the page of diagnose: a timeline of a million slices in headless Chromium, with no network to reach."""
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import lib

sys.path.insert(0, str(lib.ROOT / "tests" / "page"))
import browser  # noqa: E402  pylint: disable=wrong-import-position

MAKE_JOB = lib.BUILD / "tests" / "make_job"
SCRATCH = lib.ROOT / "build"  # on disk: the traces take 280 MB
FRAMES = 60
# In the first frame every row is in view, so that all slices are. Then into the step and out again while moving along.
# Reading a pixel back ends the drawing before the clock is read; what was drawn is counted after it.
SEQUENCE = """(() => {
  const {canvas, data} = timeline, context = canvas.getContext("2d", {willReadFrequently: true});
  const paper = [pixelOf(theme("surface")), pixelOf(theme("soft")), pixelOf(theme("line"))], times = [], drawn = [];
  const left = Math.round(timeline.gutter * devicePixelRatio), top = Math.round(26 * devicePixelRatio);
  for (let frame = 0; frame < %d; ++frame) {
    const depth = frame < 30 ? frame : 59 - frame, span = (data.end - data.begin) * 0.75 ** depth;
    const middle = data.begin + (data.end - data.begin) * (0.3 + 0.4 * frame / %d);
    timeline.show(middle - span / 2, middle + span / 2);
    const begin = performance.now();
    timeline.draw();
    context.getImageData(left, top, 1, 1);
    times.push(performance.now() - begin);
    const {data: bytes} = context.getImageData(left, top, canvas.width - left, canvas.height - top);
    drawn.push(new Uint32Array(bytes.buffer).reduce((sum, pixel) => sum + !paper.includes(pixel), 0));
  }
  return {times, drawn};
})()""" % (FRAMES, FRAMES)
IN_VIEW = """(() => { timeline.show(timeline.data.begin, timeline.data.end); timeline.arrange();
  return timeline.lines.filter((line) => line.row && line.top + line.height <= timeline.box.clientHeight - 26)
    .reduce((sum, line) => sum + line.row.count, 0); })()"""


def no_network():
    """The start of a command line that cuts a program off from every network."""
    prefix = ["unshare", "--map-root-user", "--net"]
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        raise lib.NoPeer("unshare --net is not allowed here")
    return prefix


def add_cases(room):
    @room.case("page: a timeline of a million slices")
    def million(case):
        if browser.CHROMIUM is None:
            raise lib.NoPeer("chromium is not there")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="page-", dir=SCRATCH))
        try:
            subprocess.run([str(MAKE_JOB), "--out", str(folder), "--topology", "ddp", "--ranks", "2", "--steps", "1",
                            "--events", "560000", "--seed", "2"], check=True, stdout=subprocess.DEVNULL)
            page = folder / "page.html"
            usage = lib.measure([lib.COMMAND, "diagnose", folder, "--html", page])
            if usage.status != 0:
                raise RuntimeError(f"diagnose ended with {usage.status}")
            measure(case, page, usage)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def measure(case, page, usage):
    with browser.Browser(prefix=no_network()) as window:
        seconds = window.open(page)
        case.report(window.value(IN_VIEW), ">=", 1_000_000, name="page: slices in view at once")
        figures = window.value(SEQUENCE)
        case.report(statistics.median(figures["times"]), "<=", 33.0, n=FRAMES, unit="ms", name="page: redraw, median",
                    note=f"longest {max(figures['times']):.1f} ms")
        case.report(sum(count > 5000 for count in figures["drawn"]), "==", FRAMES, n=FRAMES,
                    name="page: redraws that drew", note=f"least {min(figures['drawn'])} pixels that are not background")
        outside = [each for each in window.requests if not each.startswith(("file:", "data:", "blob:"))]
        faults = window.errors + [window.value("document.documentElement.dataset.errors ?? ''")]
        case.report(len(outside) + sum(map(bool, faults)), "==", 0, name="page: requests and errors without a network",
                    note="; ".join(filter(None, faults)) or f"there {seconds:.1f} s after it was opened")
        case.report(page.stat().st_size / 1e6, "<=", 8.0, unit="MB", name="page: size with a million slices",
                    note=f"diagnose took {usage.seconds:.1f} s CPU, {usage.peak_bytes / 1e6:.0f} MB")


def main():
    room = lib.Room("diagnose")
    add_cases(room)
    room.finish()


if __name__ == "__main__":
    main()
