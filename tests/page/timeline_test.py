"""The page's timeline and the comparison's staircase in a browser that is driven as people do it: keys, wheel, mouse.

    tests/page/timeline_test.py PACELINE     the command to test
"""
import collections
import decimal
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import browser  # noqa: E402  pylint: disable=wrong-import-position
import synthetic  # noqa: E402  pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = ROOT / "examples" / "slow_rank"
PACELINE = ROOT / "build/release/cli/paceline"

# Every slice of the timeline as the page holds it: [rank, name, start, duration].
SLICES = """timeline.data.rows.flatMap((row) => Array.from({length: row.count}, (_, i) =>
    [row.lane.rank.rank, timeline.data.nameOf(row, i), row.start[i], row.end[i] - row.start[i]]))"""
DETAILS = """Object.fromEntries([...document.querySelectorAll(".details dl div")].map((pair) =>
    [pair.querySelector("dt").textContent, pair.querySelector("dd").dataset.ns ?? pair.querySelector("dd").textContent]))"""
WINDOW = "[timeline.begin, timeline.end]"


def paceline(*arguments, status=0):
    run = subprocess.run([PACELINE, *map(str, arguments)], capture_output=True, text=True, encoding="utf-8", cwd=ROOT,
                         stdin=subprocess.DEVNULL, timeout=120, check=False)
    if run.returncode != status:
        raise AssertionError(f"{arguments} ended with {run.returncode}, not {status}: {run.stderr}")
    return run


def recorded(rank):
    """[(name, start, end)] in ns of all slices that a rank's file holds."""
    trace = json.loads(gzip.decompress((JOB / f"rank-{rank}.json.gz").read_bytes()), parse_float=decimal.Decimal)
    slices = []
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            start, duration = trace["baseTimeNanoseconds"] + int(event["ts"] * 1000), int(event["dur"] * 1000)
            slices.append((event["name"], start, start + duration))
    return slices


class TimelineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.page = cls.folder / "slow_rank.html"
        cls.result = json.loads(paceline("diagnose", JOB, "--json", "--html", cls.page).stdout)
        cls.packed = synthetic.data_of(cls.page.read_text(encoding="utf-8"), "timeline-data")
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def setUp(self):
        self.browser.requests.clear()
        self.browser.errors.clear()
        self.browser.open(self.page)
        self.browser.value("document.getElementById('timeline').scrollIntoView({behavior: 'instant'})")
        self.browser.frame()

    def tearDown(self):
        self.assertEqual(self.browser.errors, [])
        self.assertIsNone(self.browser.value("document.documentElement.dataset.errors ?? null"))
        outside = [each for each in self.browser.requests if not each.startswith(("file:", "data:", "blob:"))]
        self.assertEqual(outside, [])

    def value(self, expression):
        return self.browser.value(expression)

    def at(self, time, row):
        """The point in the window at which `row` (an expression) is at `time`."""
        return self.value(f"""(() => {{ const box = timeline.canvas.getBoundingClientRect(), line = timeline.lineOf({row});
            return [box.x + timeline.xOf({time}), box.y + 26 + line.top - timeline.box.scrollTop + line.height / 2]; }})()""")

    def focus(self):
        self.browser.click(*self.value("(() => { const b = timeline.canvas.getBoundingClientRect(); return [b.x + 5, b.y + 5]; })()"))

    def test_holds_every_slice_of_the_step_with_its_exact_times(self):
        step = self.packed["step"]
        self.assertEqual(self.packed["left_out"], 0)
        begins = {}
        for rank in self.result["ranks"]:
            self.assertEqual(rank["clock"]["offset_ns"], 0)  # so that times compare as they stand
            own = next(each for each in rank["steps"] if each["number"] == step)
            begins[rank["rank"]] = (own["begin_ns"], own["begin_ns"] + own["duration_ns"])
        begin, end = min(first for first, _ in begins.values()), max(last for _, last in begins.values())
        self.assertEqual(self.packed["length_ns"], end - begin)
        expected = collections.Counter()
        for rank in begins:
            for name, first, last in recorded(rank):
                if first < end and last > begin:
                    expected[(rank, name, first - begin, last - first)] += 1
        self.assertGreater(len(expected), 4000)
        self.assertEqual(collections.Counter(map(tuple, self.value(SLICES))), expected)

    def test_slices_of_a_row_do_not_overlap(self):
        self.assertEqual(self.value("""timeline.data.rows.filter((row) => {
            for (let i = 1; i < row.count; ++i) if (row.start[i] < row.end[i - 1]) return true; return false; }).length"""), 0)

    def test_shows_the_median_step_and_the_one_asked_for(self):
        lengths = collections.defaultdict(list)
        for rank in self.result["ranks"]:
            for step in rank["steps"]:
                lengths[step["number"]].append(step["duration_ns"])
        means = sorted((sum(each) // len(each), number) for number, each in lengths.items())
        self.assertEqual(self.packed["step"], means[(len(means) - 1) // 2][1])
        page = self.folder / "step.html"
        paceline("diagnose", JOB, "--html", page, "--timeline-step", 4, "--timeline", "1,3")
        packed = synthetic.data_of(page.read_text(encoding="utf-8"), "timeline-data")
        self.assertEqual((packed["step"], [rank["rank"] for rank in packed["ranks"]]), (4, [1, 3]))

    def test_leaves_the_timeline_out_when_told_and_for_a_pipe(self):
        page = self.folder / "none.html"
        paceline("diagnose", JOB, "--html", page, "--timeline", "none")
        self.assertIsNone(synthetic.data_of(page.read_text(encoding="utf-8"), "timeline-data"))
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            with os.fdopen(write, "wb") as pipe:
                pipe.write(gzip.decompress((JOB / "rank-0.json.gz").read_bytes()))
            os._exit(0)
        os.close(write)
        subprocess.run([PACELINE, "diagnose", f"/dev/fd/{read}", "--html", page], pass_fds=[read], check=True, timeout=60,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read)
        os.waitpid(pid, 0)
        self.assertIsNone(synthetic.data_of(page.read_text(encoding="utf-8"), "timeline-data"))

    def test_says_which_steps_there_are(self):
        run = paceline("diagnose", JOB, "--html", self.folder / "no.html", "--timeline-step", 77, status=2)
        self.assertIn("no rank has step 77; the traces have 0-5", run.stderr)
        paceline("diagnose", JOB, "--html", self.folder / "no.html", "--timeline", "9", status=2)

    def test_draws_slices_in_their_lanes_and_nothing_between(self):
        at, index, _ = next(each for each in self.packed["collectives"] if each[1] == 0)
        row = f"timeline.data.rows[{at}]"
        start, end, wait = self.value(f"[{row}.start[{index}], {row}.end[{index}], {row}.wait({index})]")
        self.assertGreater(start, 1e6)
        points = [self.at((start + wait + end) / 2, row), self.at(0.9 * start, row)]
        # 5 pixels above the middle of the row: there is no text.
        busy, idle = self.value(f"""(() => {{ const box = timeline.canvas.getBoundingClientRect(), width = timeline.canvas.width;
            const {{data}} = timeline.canvas.getContext("2d").getImageData(0, 0, width, timeline.canvas.height);
            return {points}.map(([x, y]) => {{ const at = 4 * (Math.round(y - box.y - 5) * width + Math.round(x - box.x));
                return [...data.slice(at, at + 3)]; }}); }})()""")
        self.assertEqual(busy, self.value("channels(theme('act-communication'))"))
        self.assertIn(idle, self.value("[channels(theme('surface')), channels(theme('soft')), channels(theme('line'))]"))

    def test_keys_move_the_window(self):
        self.focus()
        whole = self.value(WINDOW)
        self.assertEqual(whole, [0, self.packed["length_ns"]])
        self.browser.key("w")
        near = self.value(WINDOW)
        self.assertAlmostEqual((near[1] - near[0]) / (whole[1] - whole[0]), 0.6, places=6)
        self.browser.key("d")
        right = self.value(WINDOW)
        self.assertGreater(right[0], near[0])
        self.assertAlmostEqual(right[1] - right[0], near[1] - near[0], places=3)
        self.browser.key("a")
        self.assertAlmostEqual(self.value(WINDOW)[0], near[0], places=3)
        self.browser.key("s")
        self.browser.key("-")
        self.assertEqual(self.value(WINDOW), whole)
        for _ in range(60):
            self.browser.key("+")
        self.assertAlmostEqual(self.value("timeline.end - timeline.begin"), 50, places=3)
        self.browser.key("Home")
        self.assertEqual(self.value(WINDOW), whole)
        self.browser.key("?")
        self.assertTrue(self.value("!timeline.keys.hidden && timeline.keys.offsetHeight > 0"))

    def test_arrows_go_from_slice_to_slice_and_tell_each(self):
        self.value("timeline.canvas.focus()")
        slices = self.value("""(() => { const row = timeline.data.rows[2]; return Array.from({length: 5}, (_, i) =>
            [timeline.data.nameOf(row, i), row.start[i], row.end[i] - row.start[i]]); })()""")
        self.value("timeline.choose(timeline.data.rows[2], 0); timeline.show(0, 1e6)")
        for name, start, duration in slices[1:]:
            self.browser.key("ArrowRight")
            told = self.value(DETAILS)
            self.assertEqual(self.value("document.querySelector('.details .name').textContent"), name)
            self.assertEqual((told["start"], told["duration"], told["rank"], told["lane"]), (str(start), str(duration), "0", "main"))
        self.browser.key("ArrowLeft")
        self.assertEqual(self.value(DETAILS)["start"], str(slices[3][1]))
        self.browser.key("ArrowUp")
        self.assertEqual(self.value("timeline.chosen.row.level"), 1)
        self.browser.key("f")
        begin, end = self.value(WINDOW)
        self.assertAlmostEqual((end - begin) / int(self.value(DETAILS)["duration"]), 1.3, places=3)
        self.browser.key("Escape")
        self.assertEqual(self.value(DETAILS), {})

    def test_the_wheel_zooms_around_the_pointer_once_clicked(self):
        x, y = self.at(20e6, "timeline.data.rows[1]")
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-40)
        self.browser.frame()
        self.assertEqual(self.value(WINDOW), [0, self.packed["length_ns"]])
        self.value("document.getElementById('timeline').scrollIntoView({behavior: 'instant'})")
        self.focus()
        x, y = self.at(20e6, "timeline.data.rows[1]")
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
        self.browser.frame()
        begin, end = self.value(WINDOW)
        self.assertLess(end - begin, 0.8 * self.packed["length_ns"])
        pixel = (end - begin) / self.value("timeline.plotWidth()")
        self.assertAlmostEqual(self.value(f"timeline.timeAt({x} - timeline.canvas.getBoundingClientRect().x)"), 20e6, delta=2 * pixel)

    def test_a_drag_moves_the_time_under_the_pointer(self):
        self.value("timeline.show(10e6, 30e6); timeline.draw()")
        x, y = self.at(20e6, "timeline.data.rows[1]")
        self.browser.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", x + 120, y, button="left")
        self.browser.mouse("mouseReleased", x + 120, y, button="left", clickCount=1)
        self.browser.frame()
        begin, end = self.value(WINDOW)
        self.assertAlmostEqual((10e6 - begin) / ((end - begin) / self.value("timeline.plotWidth()")), 120, delta=1)
        self.assertIsNone(self.value("timeline.chosen"))

    def test_a_click_on_a_collective_tells_who_waited_and_who_came_last(self):
        for at, index, number in self.packed["collectives"]:
            row = f"timeline.data.rows[{at}]"
            rank, start, end = self.value(f"[{row}.lane.rank.rank, {row}.start[{index}], {row}.end[{index}]]")
            if start < 0 or end > self.packed["length_ns"] or self.at(start, row)[1] > 850:
                continue
            self.browser.click(*self.at((start + end) / 2, row))
            told, collective = self.value(DETAILS), self.result["collectives"][number]
            self.assertEqual(int(told["waited"]), collective["waits_ns"][collective["members"].index(rank)])
            self.assertEqual(int(told["transfer after that"]), collective["transfer_ns"])
            self.assertEqual(told["last to arrive"], f"rank {collective['last_rank']}")
            self.assertEqual(int(told["duration"]), end - start)
            return
        self.fail("no collective lies wholly in the step")

    def test_the_search_counts_and_finds_one_after_the_other(self):
        slices = [each for each in self.value(SLICES) if "addmm" in each[1].lower()]
        self.assertGreater(len(slices), 20)
        self.value("timeline.search.focus()")
        for letter in "addmm":
            self.browser.key(letter)
        self.assertTrue(self.value("timeline.searchResult.textContent").startswith(f"{len(slices)} slices, "))
        starts = sorted(each[2] for each in slices)
        found = []
        for _ in range(3):
            self.browser.key("Enter")
            found.append(self.value("timeline.chosen.row.start[timeline.chosen.index]"))
        self.assertEqual(found, sorted(set(starts))[:3])
        self.browser.key("Enter", "Shift")
        self.assertEqual(self.value("timeline.chosen.row.start[timeline.chosen.index]"), found[1])

    def test_sums_over_a_pixel_equal_those_slice_by_slice(self):
        wrong = self.value("""(() => { let wrong = 0, seed = 1;
            const random = (below) => { seed = (seed * 48271) % 2147483647; return seed % below; };
            for (let round = 0; round < 2000; ++round) {
              const row = timeline.data.rows[random(timeline.data.rows.length)], from = random(row.count + 1);
              const end = from + random(row.count - from + 1);
              row.sums.forEach((sums, activity) => {
                let sum = 0;
                for (let i = from; i < end; ++i) sum += row.time(i, activity, timeline.data.packed.kinds);
                if (sum !== row.between(sums, from, end, (i) => row.time(i, activity, timeline.data.packed.kinds))) ++wrong;
              });
              const time = random(timeline.data.end);
              let first = 0;
              while (first < row.count && row.end[first] <= time) ++first;
              if (first !== row.firstEndingAfter(time)) ++wrong;
              let next = from;
              while (next < row.count && row.start[next] < time) ++next;
              if (next !== row.firstStartingAt(from, time)) ++wrong;
            }
            return wrong; })()""")
        self.assertEqual(wrong, 0)

    def test_a_closed_rank_opens_by_click_and_key(self):
        rows = self.value("timeline.lines.length")
        x, y = self.value("(() => { const b = timeline.canvas.getBoundingClientRect(); return [b.x + 20, b.y + 26 + 4 + 13]; })()")
        self.browser.click(x, y)
        self.assertLess(self.value("timeline.lines.length"), rows)
        self.browser.key("ArrowRight")
        self.browser.key("c")
        self.assertEqual(self.value("timeline.lines.length"), rows)

    def test_has_a_text_for_readers_of_the_screen(self):
        label = self.value("timeline.canvas.getAttribute('aria-label')")
        self.assertIn(f"Timeline of step {self.packed['step']}: 4 ranks, ", label)
        self.assertEqual(self.value("timeline.canvas.tabIndex"), 0)


class ComparisonTest(unittest.TestCase):
    """A run against itself with one rank's batches taken out: the staircase leads from one step to the other."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        faster = cls.folder / "faster"
        faster.mkdir()
        for source in sorted(JOB.glob("*.json.gz")):
            text = gzip.decompress(source.read_bytes()).decode()
            (faster / source.name[:-3]).write_text(text.replace('"load_batch"', '"read_batch"'), encoding="utf-8")
        cls.page = cls.folder / "comparison.html"
        cls.json = json.loads(paceline("compare", JOB, faster, "--json", "--html", cls.page).stdout)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def test_the_staircase_ends_at_the_step_after(self):
        self.browser.open(self.page)
        self.check_stairs()
        self.assertEqual(self.browser.errors, [])
        self.assertIn("comparison", self.browser.value("document.querySelector('.brand').textContent"))

    def test_a_diagnosis_with_a_comparison_shows_it(self):
        page = self.folder / "diagnosis.html"
        result = json.loads(paceline("diagnose", JOB, "--json", "--html", page).stdout)
        page.write_text(synthetic.with_result(page.read_text(encoding="utf-8"), dict(result, comparison=self.json)), encoding="utf-8")
        self.browser.open(page)
        self.check_stairs()

    def check_stairs(self):
        stairs = self.browser.value("[...document.querySelectorAll('.stair .amount')].map((each) => +each.dataset.ns)")
        self.assertEqual((stairs[0], stairs[-1]), (self.json["step_before_ns"], self.json["step_after_ns"]))
        self.assertEqual(sum(stairs[:-1]), stairs[-1])
        shown = self.browser.value("[...document.querySelectorAll('.stair .what b')].map((each) => each.textContent)")
        largest = self.json["changes"][0]
        self.assertEqual((shown[1], stairs[1]), (largest["what"], largest["change_ns"]))
        ends = self.browser.value("""[...document.querySelectorAll(".stair .track i")].map((bar) => {
            const box = bar.getBoundingClientRect(); return [box.left, box.right]; })""")
        # Each stair begins where the one before it ended.
        at = ends[0][1]
        for (left, right), change in zip(ends[1:-1], stairs[1:-1]):
            begin, stop = (left, right) if change > 0 else (right, left)
            self.assertAlmostEqual(begin, at, delta=2.5)
            at = stop if right - left > 2.5 else at
        self.assertAlmostEqual(ends[-1][1], at, delta=2.5)


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.exists(sys.argv[1]):
        PACELINE = pathlib.Path(sys.argv.pop(1)).resolve()
    if browser.CHROMIUM is None:
        print("SKIPPED: no chromium")
        sys.exit(0)
    unittest.main()
