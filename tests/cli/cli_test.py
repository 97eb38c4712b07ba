"""The command as people and scripts meet it: exit codes, messages, pipes, full disks, terminals.

    cli_test.py PATH_TO_PACELINE
"""
import gzip
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACELINE = None
EXAMPLE = "examples/slow_rank"


def run(*arguments, **options):
    environment = {**os.environ, **options.pop("env", {})}
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([PACELINE, *map(str, arguments)], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=120, check=False, **options)


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def expect_refused(self, code, place, words, *arguments):
        """Exit code `code`, nothing on standard output, one line that names `place` and says what is wrong."""
        result = run(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("paceline: "), lines[0])
        self.assertIn(str(place), lines[0])
        self.assertRegex(lines[0], words)


def ndtimeline(slow_rank):
    """Two steps of a job of one stage and three dp ranks, one of which computes twice as long."""
    events = []
    for rank in range(3):
        events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": 0,
                       "args": {"name": "PP rank 0, TP rank 0, compute"}})
        for step in range(2):
            for name, begin, time in (("forward-compute", 0, 1000), ("backward-compute", 1000, 2000)):
                times = 2 if rank == slow_rank else 1
                events.append({"ph": "X", "name": name, "pid": rank, "tid": 0, "ts": step * 10000 + begin * times,
                               "dur": time * times, "args": {"step": step, "model_chunk": 0, "mb_id": 0, "seq_id": 0}})
    return json.dumps(events)


class Usage(CommandTest):
    def test_version_is_one_line(self):
        result = run("--version")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^paceline \d+\.\d+\.\d+\n$")

    def test_wrong_arguments_exit_with_2_and_say_where_help_is(self):
        for arguments in ([], ["nonsense"], ["diagnose"], ["diagnose", EXAMPLE, "--nonsense"],
                          ["diagnose", EXAMPLE, "--rows", "many"], ["--threads", "-1", "diagnose", EXAMPLE],
                          ["convert", EXAMPLE]):
            with self.subTest(arguments):
                self.expect_refused(2, "paceline", "see paceline --help", *arguments)

    def test_examples_of_the_help_work(self):
        for command in ("diagnose", "convert", "replay"):
            result = run(command, "--help")
            self.assertEqual(result.returncode, 0)
            example = re.search(r"^  paceline (.*examples/slow_rank.*?)(?: +#.*)?$", result.stdout, re.MULTILINE)
            self.assertIsNotNone(example, f"{command} --help has no example on the bundled files")
            arguments = example.group(1).replace("job.json", str(self.folder / "job.json")).split()
            self.assertEqual(run(*arguments).returncode, 0, arguments)

    def test_help_names_every_command_and_exit_code(self):
        self.assertRegex(run("--help").stdout, r"(?s)diagnose.*convert")
        for code in ("0 fine", "2 usage", "3 bad input", "5 system", "6 damaged input"):
            self.assertIn(code, run("diagnose", "--help").stdout)

    def test_threads_stand_before_or_behind_the_command_and_change_nothing(self):
        expected = run("diagnose", EXAMPLE, "--json").stdout
        for arguments in (["--threads", "1", "diagnose", EXAMPLE, "--json"],
                          ["diagnose", EXAMPLE, "--json", "--threads", "4"]):
            self.assertEqual(run(*arguments).stdout, expected)


class Replay(CommandTest):
    def setUp(self):
        super().setUp()
        self.trace = self.folder / "timeline.json"
        self.trace.write_text(ndtimeline(slow_rank=1), encoding="utf-8")

    def test_names_the_slow_worker_and_what_its_repair_wins(self):
        result = run("replay", self.trace, "--without-stragglers", "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        found = json.loads(result.stdout)
        self.assertEqual(found["schema"], "paceline/stragglers/1")
        self.assertEqual((found["blame"], found["worst_workers"]), ("workers", ["stage 0, dp rank 1"]))
        self.assertAlmostEqual(found["slowdown"], 1.5, 5)  # 6 ms against the mean of 3, 6 and 3
        self.assertAlmostEqual(found["workers"][1]["repair_ns"] / 1e6, 2.0, 5)
        self.assertRegex(run("replay", self.trace, "--without-stragglers").stdout,
                         r"(?s)S = 1\.500\nTo blame: stage 0, dp rank 1.*dp rank 1 +-2\.0")

    def test_several_ranks_of_a_profiler(self):
        result = run("replay", EXAMPLE, "--without-stragglers", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual(found["worst_workers"], ["rank 2"])  # the rank that was slowed
        self.assertEqual(max(found["workers"], key=lambda worker: worker["repair_ns"])["name"], "rank 2")

    def test_without_a_question_it_says_which_there_are(self):
        self.expect_refused(3, "timeline.json", "--without-stragglers", "replay", self.trace)

    def test_commands_for_ranks_say_where_an_ndtimeline_goes(self):
        self.expect_refused(3, self.trace, "paceline replay", "diagnose", self.trace)

    def test_a_damaged_ndtimeline_gives_a_result_and_6(self):
        text = self.trace.read_text(encoding="utf-8")
        self.trace.write_text(text[:text.rindex('"ph": "X"') + 20], encoding="utf-8")
        result = run("replay", self.trace, "--without-stragglers")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("left out step 1", result.stderr)
        self.assertIn("1 steps", result.stdout)


class BadInput(CommandTest):
    def test_a_missing_file(self):
        self.expect_refused(3, "/no/such/file", "no such file.*; check the path", "diagnose", "/no/such/file")

    def test_a_pattern_that_matches_nothing(self):
        pattern = str(self.folder / "rank*.json")
        self.expect_refused(3, pattern, "no file matches", "diagnose", pattern)

    def test_an_empty_file(self):
        empty = self.folder / "empty.json"
        empty.touch()
        self.expect_refused(3, empty, "empty", "diagnose", empty)

    def test_an_empty_directory(self):
        self.expect_refused(3, self.folder, "no files", "diagnose", self.folder)

    def test_a_directory_without_traces(self):
        (self.folder / "notes.md").write_text("nothing here\n")
        (self.folder / "data.json").write_text('{"a": 1}\n')
        self.expect_refused(3, self.folder, "not a trace|no traces", "diagnose", self.folder)

    def test_a_file_that_is_no_trace(self):
        other = self.folder / "other.bin"
        other.write_bytes(bytes(range(256)) * 20)
        self.expect_refused(3, other, "not a trace", "diagnose", other)

    def test_an_unreadable_file(self):
        locked = self.folder / "locked.json"
        locked.write_text("{}")
        locked.chmod(0)
        self.folder.chmod(0o755)
        nobody = {"user": 65534} if os.geteuid() == 0 else {}  # root reads everything
        try:
            result = run("diagnose", locked, **nobody)
        except PermissionError:
            self.skipTest("another user cannot run the command from here")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertRegex(result.stderr, r"^paceline: .*locked\.json: .*Permission denied; check .*\n$")

    def test_one_bad_file_among_good_ones_is_a_warning(self):
        shutil.copytree(ROOT / EXAMPLE, self.folder / "job")
        (self.folder / "job" / "rank-9.json").write_text("not a trace")
        result = run("diagnose", self.folder / "job", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(any("rank-9.json" in line for line in json.loads(result.stdout)["warnings"]))


class DamagedInput(CommandTest):
    def test_truncated_compression_gives_a_result_and_6_for_every_damaged_rank(self):
        for rank in (1, 3):
            whole = (ROOT / EXAMPLE / f"rank-{rank}.json.gz").read_bytes()
            (self.folder / f"rank-{rank}.json.gz").write_bytes(whole[:len(whole) * 2 // 3])
        shutil.copy(ROOT / EXAMPLE / "rank-0.json.gz", self.folder)
        result = run("diagnose", self.folder, "--json")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertEqual(len(json.loads(result.stdout)["ranks"]), 3)
        for rank in (1, 3):
            self.assertIn(f"rank-{rank}.json.gz", result.stderr)
        for line in result.stderr.splitlines():
            self.assertTrue(line.startswith("paceline: "), line)

    def test_truncated_text_is_said_with_its_byte(self):
        text = gzip.decompress((ROOT / EXAMPLE / "rank-0.json.gz").read_bytes())
        cut = self.folder / "cut.json"
        cut.write_bytes(text[:len(text) // 2])
        result = run("diagnose", cut)
        self.assertEqual(result.returncode, 6)
        self.assertRegex(result.stderr, r"cut\.json: byte \d+")
        self.assertIn("Where a step goes", result.stdout)

    def test_convert_says_6_too(self):
        text = gzip.decompress((ROOT / EXAMPLE / "rank-0.json.gz").read_bytes())
        cut = self.folder / "cut.json"
        cut.write_bytes(text[:len(text) // 2])
        self.assertEqual(run("convert", cut, self.folder / "out.json").returncode, 6)
        self.assertGreater(len(json.loads((self.folder / "out.json").read_text())["traceEvents"]), 100)


class Results(CommandTest):
    def test_json_is_valid_and_has_its_schema(self):
        result = run("diagnose", EXAMPLE, "--json")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(json.loads(result.stdout)["schema"], "paceline/diagnosis/1")

    def test_standard_error_is_silent_without_a_terminal(self):
        self.assertEqual(run("diagnose", EXAMPLE).stderr, "")

    def test_the_page_holds_the_result(self):
        page = self.folder / "report.html"
        self.assertEqual(run("diagnose", EXAMPLE, "--html", page).returncode, 0)
        self.assertIn("paceline/diagnosis/1", page.read_text())

    def test_convert_writes_one_file_of_all_ranks(self):
        out = self.folder / "job.json"
        result = run("convert", EXAMPLE, out)
        self.assertEqual(result.returncode, 0, result.stderr)
        events = json.loads(out.read_text())["traceEvents"]
        self.assertEqual({event["pid"] for event in events}, {0, 1, 2, 3})
        self.assertEqual([path.name for path in self.folder.iterdir()], ["job.json"])

    def test_convert_keeps_the_ranks_asked_for_on_the_clock_of_the_whole_job(self):
        whole, part = self.folder / "whole.json", self.folder / "part.json.gz"
        self.assertEqual(run("convert", EXAMPLE, whole).returncode, 0)
        self.assertEqual(run("convert", EXAMPLE, part, "--ranks", "1,3", "--aligned").returncode, 0)

        def starts(text):
            trace = json.loads(text)
            return {rank: [round(event["ts"] * 1000) + trace["baseTimeNanoseconds"] for event in trace["traceEvents"]
                           if event["ph"] == "X" and event["pid"] == rank] for rank in (0, 1, 2, 3)}
        of_whole, of_part = starts(whole.read_text()), starts(gzip.decompress(part.read_bytes()))
        self.assertEqual([of_part[1], of_part[3]], [of_whole[1], of_whole[3]])
        self.assertEqual([of_part[0], of_part[2]], [[], []])
        self.expect_refused(2, "--aligned", "--raw-clocks", "convert", EXAMPLE, whole, "--aligned", "--raw-clocks")

    def test_convert_writes_for_speedscope_by_the_name_or_by_the_flag(self):
        for name, flags in (("job.speedscope.json", []), ("job.json", ["--speedscope"])):
            self.assertEqual(run("convert", EXAMPLE, self.folder / name, *flags).returncode, 0)
            profile = json.loads((self.folder / name).read_text())
            self.assertEqual(profile["$schema"], "https://www.speedscope.app/file-format-schema.json")
            self.assertTrue({f"rank {rank}" for rank in range(4)} <= {one["name"].split(",")[0]
                                                                      for one in profile["profiles"]})

    def test_the_excerpt_of_a_finding_has_it_again_without_a_name(self):
        findings = json.loads(run("diagnose", EXAMPLE, "--json").stdout)["findings"]
        late = next(finding for finding in findings if finding["kind"] == "late_rank")
        out = self.folder / "excerpt"
        result = run("convert", EXAMPLE, out, "--finding", late["id"], "--anonymise")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, rf"wrote .*: {late['id']} is F\d there")
        again = json.loads(run("diagnose", out, "--json").stdout)
        self.assertEqual((again["verdict"]["rank"], again["verdict"]["class"]), (late["rank"], late["class"]))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["excerpt"])
        self.assertLess(sum(file.stat().st_size for file in out.iterdir()), 60_000)
        for file in out.iterdir():
            text = gzip.decompress(file.read_bytes()).decode()
            for name in ("aten::", "load_batch", "DistributedDataParallel", "Optimizer"):
                self.assertNotIn(name, text)

    def test_an_excerpt_says_what_it_cannot_do(self):
        self.expect_refused(2, "--finding", "there is no 'F99'; the job has F1, ", "convert", EXAMPLE, self.folder / "out",
                            "--finding", "F99")
        (self.folder / "notes").write_text("mine")
        self.expect_refused(3, self.folder, "is there already; .* new or empty folder", "convert", EXAMPLE, self.folder,
                            "--finding", "F1")
        self.assertEqual((self.folder / "notes").read_text(), "mine")

    def test_every_finding_says_how_it_is_known_and_a_next_command_that_works(self):
        job = self.folder / "my job"
        shutil.copytree(ROOT / EXAMPLE, job)
        findings = json.loads(run("diagnose", job, "--json").stdout)["findings"]
        text = run("diagnose", job).stdout
        self.assertGreater(len(findings), 2)
        for finding in findings:
            self.assertIn(finding["basis"], ("measured", "inferred"))
            self.assertIn(f"{finding['id']} {finding['title']} ({finding['basis']})", text)
            self.assertIn(f"     $ {finding['next']}", text)
            command = finding["next"].replace("paceline", str(PACELINE), 1)
            done = subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}")

    def test_a_run_against_itself_has_no_difference_from_traces_or_from_what_was_saved(self):
        saved, page = self.folder / "saved.json", self.folder / "page.html"
        self.assertEqual(run("diagnose", EXAMPLE, "--save", saved).returncode, 0)
        self.assertLess(saved.stat().st_size, 1_000_000)
        compared = json.loads(run("compare", EXAMPLE, EXAMPLE, "--json").stdout)
        self.assertEqual({row["change_ns"] for row in compared["groups"] + compared["changes"]}, {0})
        for baseline in (EXAMPLE, saved):
            result = run("diagnose", EXAMPLE, "--baseline", baseline, "--json", "--html", page, "--fail-on", "step>+0%")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["comparison"], compared)
            self.assertIn('"comparison"', page.read_text())
        text = run("diagnose", EXAMPLE, "--baseline", saved).stdout
        self.assertRegex(text, r"(?s)Where a step goes.*Against the baseline: step (\S+) ms -> \1 ms.*not explained")

    def test_a_bound_that_is_broken_exits_with_1_and_keeps_the_result(self):
        faster = self.folder / "faster.json"
        self.assertEqual(run("diagnose", EXAMPLE, "--save", faster).returncode, 0)
        baseline = json.loads(faster.read_text())
        most = max(baseline["charges"], key=lambda charge: charge["time_ns"])
        most["time_ns"] -= baseline["length_ns"] // 10
        baseline["length_ns"] -= baseline["length_ns"] // 10
        faster.write_text(json.dumps(baseline))
        for command in (["diagnose", EXAMPLE, "--baseline", faster], ["compare", faster, EXAMPLE]):
            result = run(*command, "--json", "--fail-on", "step>+5%")
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, r"^paceline: the step grew by 11\.1 %, more than step>\+5% allows\n$")
            self.assertIn("step_before_ns", result.stdout)
            self.assertEqual(run(*command, "--fail-on", "step>+12%").returncode, 0)
        self.expect_refused(2, "--fail-on", "name it with --baseline", "diagnose", EXAMPLE, "--fail-on", "step>+5%")
        self.expect_refused(2, "--fail-on", "expected a bound such as", "compare", EXAMPLE, EXAMPLE, "--fail-on", "step")

    def test_a_closed_pipe_ends_quietly(self):
        for command in ("--json", "--every-step"):
            process = subprocess.Popen([PACELINE, "diagnose", EXAMPLE, command], cwd=ROOT, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            process.stdout.readline()
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            process.stderr.close()
            self.assertEqual(process.wait(timeout=60), 0)

    def test_a_full_disk_exits_with_5_and_says_so(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = run("diagnose", EXAMPLE, stdout=full)
        self.assertEqual(result.returncode, 5)
        self.assertRegex(result.stderr, r"^paceline: standard output: .*; .*\n$")
        for arguments in (["convert", EXAMPLE, "/dev/full"], ["diagnose", EXAMPLE, "--html", "/dev/full"]):
            with self.subTest(arguments):
                self.expect_refused(5, "/dev/full", "cannot write: .*; ", *arguments)
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())

    def test_a_place_that_cannot_be_written_exits_with_3(self):
        for arguments in (["convert", EXAMPLE, "/no/such/folder/out"], ["diagnose", EXAMPLE, "--html", "/no/such/out"]):
            with self.subTest(arguments):
                self.expect_refused(3, arguments[-1], "cannot write: .*; check the path", *arguments)


class Terminal(CommandTest):
    def in_terminal(self, stream="stdout", **environment):
        """What `diagnose` writes to a terminal."""
        leader, follower = pty.openpty()
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: follower}
        process = subprocess.Popen([PACELINE, "diagnose", EXAMPLE], cwd=ROOT, **streams,
                                   env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **environment})
        os.close(follower)
        text = b""
        try:
            while part := os.read(leader, 65536):
                text += part
        except OSError:  # the other end is closed
            pass
        os.close(leader)
        self.assertEqual(process.wait(timeout=60), 0)
        return text

    def test_has_colour_unless_no_color_is_set(self):
        self.assertIn(b"\x1b[1m", self.in_terminal())
        self.assertIn(b"\x1b[1m", self.in_terminal(NO_COLOR=""))  # no-color.org: empty does not count
        self.assertNotIn(b"\x1b", self.in_terminal(NO_COLOR="1"))
        self.assertNotIn("\x1b", run("diagnose", EXAMPLE).stdout)

    def test_a_short_job_has_no_preliminary_verdict(self):
        shown = self.in_terminal("stderr")
        self.assertIn(b"reading traces", shown)
        self.assertNotIn(b"erdict", shown)

    def test_ctrl_c_exits_with_130(self):
        fifo = self.folder / "never.json"
        os.mkfifo(fifo)
        process = subprocess.Popen([PACELINE, "diagnose", str(fifo)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with open(fifo, "wb") as writer:  # opens once the command reads
            writer.write(b'{"traceEvents": [')
            writer.flush()
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"interrupted", errors)


if __name__ == "__main__":
    PACELINE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
