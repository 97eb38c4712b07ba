"""The acceptance library: only what was measured and holds passes."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import lib  # noqa: E402  pylint: disable=wrong-import-position


class LibTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.addCleanup(setattr, lib, "ROOT", lib.ROOT)
        lib.ROOT = self.root
        self.git("init", "-q")
        self.commit("paceline/trace/read.cc", "first")

    def git(self, *arguments):
        return subprocess.run(["git", "-C", str(self.root), "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
                              check=True, capture_output=True, text=True).stdout.strip()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def commit(self, name, text):
        self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", name)

    def run_room(self, kind, *cases):
        """(exit status, lines) of a room with these cases."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            with self.assertRaises(SystemExit) as end:
                room = kind("trace")
                for number, function in enumerate(cases):
                    room.case(f"case {number}")(function)
                room.finish()
        return end.exception.code, out.getvalue().splitlines()

    def test_only_ok_passes(self):
        def good(case):
            case.report(0.41, "<=", 0.6, n=3, unit="s")

        def bad(case):
            case.report(7, "==", 5)
        self.assertEqual(self.run_room(lib.Room, good)[0], 0)
        status, lines = self.run_room(lib.Room, good, bad)
        self.assertEqual(status, 1)
        self.assertRegex(lines[1], r"^case 0 +0\.41 s +<= 0\.6 s +3 +- +ok$")
        self.assertRegex(lines[2], r"^case 1 +7 +== 5 +1 +- +FALLS SHORT$")
        self.assertEqual(lines[3], "trace: 1 of 2 ok")

    def test_no_case_at_all_does_not_pass(self):
        self.assertEqual(self.run_room(lib.Room)[0], 1)

    def test_missing_data_missing_peers_and_faults_become_lines(self):
        def no_data(case):
            case.report(lib.data("nowhere"), "==", 1)

        def no_peer(case):
            case.report(lib.peer_python(), "==", 1)

        def fault(_case):
            raise ValueError("odd")
        before = os.environ.pop("PACELINE_DATA", None)
        if before is not None:
            self.addCleanup(os.environ.__setitem__, "PACELINE_DATA", before)
        status, lines = self.run_room(lib.Room, no_data, no_peer, fault)
        self.assertEqual(status, 1)
        self.assertIn("NO DATA  (PACELINE_DATA is not set)", lines[1])
        self.assertIn("NO PEER", lines[2])
        self.assertIn("FALLS SHORT  (ValueError: odd)", lines[3])

    def test_the_data_hash_depends_on_contents_not_on_order(self):
        a, b = self.write("data/a", "1"), self.write("data/b", "2")
        self.assertEqual(lib.data_hash([a, b]), lib.data_hash([b, a]))
        self.assertEqual(lib.data_hash([a, b]), lib.data_hash([self.root / "data"]))
        before = lib.data_hash([a, b])
        self.write("data/b", "3")
        self.assertNotEqual(before, lib.data_hash([a, b]))

    def test_a_soak_figure_is_shown_until_the_room_changes(self):
        def figure(case):
            case.report(0, "==", 0, n=1000, seed=7)

        def good(case):
            case.report(1, "==", 1)
        self.commit("tests/acceptance/trace_soak.py", "")
        self.assertIn("nothing stored", self.run_room(lib.Room, good)[1][2])
        self.assertEqual(self.run_room(lib.Soak, figure)[0], 0)
        stored = json.loads(lib.soak_file("trace").read_text(encoding="utf-8"))["figures"]
        self.assertEqual([(f["value"], f["n"], f["seed"], f["commit"]) for f in stored],
                         [(0, 1000, 7, self.git("rev-parse", "HEAD"))])
        self.commit("paceline/cost/other.cc", "elsewhere")
        self.assertEqual(self.run_room(lib.Room, good)[0], 0)

        self.write("paceline/trace/read.cc", "dirty")
        self.assertIn("FALLS SHORT", self.run_room(lib.Room, good)[1][2])
        self.assertIn("uncommitted", self.run_room(lib.Room, good)[1][2])
        self.commit("paceline/trace/read.cc", "second")
        status, lines = self.run_room(lib.Room, good)
        self.assertEqual(status, 1)
        self.assertIn("room changed since: 1 commits", lines[2])

    def test_a_soak_needs_a_committed_room(self):
        self.write("paceline/trace/read.cc", "dirty")
        self.assertIn("commit or stash", self.run_room(lib.Soak)[0])

    def test_a_soak_that_could_not_measure_stores_nothing(self):
        def fault(_case):
            raise ValueError("odd")
        self.assertEqual(self.run_room(lib.Soak, fault)[0], 1)
        self.assertFalse(lib.soak_file("trace").exists())

    @unittest.skipUnless(lib.MEASURE.exists() and lib.REFERENCE_LOOP.exists(), "the measuring programs are not built")
    def test_measuring_sees_the_peak_and_status_of_the_command_itself(self):
        ballast = bytearray(64 << 20)  # a peak of this interpreter that must not show
        small = lib.measure(["true"])
        self.assertLess(small.peak_bytes, 16 << 20)
        self.assertEqual(len(ballast), 64 << 20)
        large = lib.measure(["sh", "-c", f"'{sys.executable}' -c 'b = b\"x\" * (80 << 20)'; exit 3"])
        self.assertGreater(large.peak_bytes, 80 << 20)
        self.assertEqual(large.status, 3)
        with self.assertRaises(RuntimeError):
            lib.cpu_time(["false"], runs=1)


if __name__ == "__main__":
    unittest.main()
