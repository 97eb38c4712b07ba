"""paceline record on real PyTorch jobs: unchanged scripts, what they print, how they end, and what is recorded.

Needs a Python with PyTorch for the jobs: $PACELINE_TORCH_PYTHON, or Debian's /usr/bin/python3 with python3-torch. Says
SKIPPED: no torch without one; what needs none is tested all the same.
"""
import fcntl
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import termios
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
COMMAND = os.environ.get("PACELINE_COMMAND", str(HERE.parent.parent / "build" / "release" / "cli" / "paceline"))
TRAIN = str(HERE / "train.py")
TORCH_PYTHON = os.environ.get("PACELINE_TORCH_PYTHON", "/usr/bin/python3")
HAS_TORCH = subprocess.run([TORCH_PYTHON, "-c", "import torch.distributed"], capture_output=True,
                           check=False).returncode == 0 if os.path.exists(TORCH_PYTHON) else False


def environment(**more):
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("PACELINE_RECORD", "RANK", "WORLD_SIZE", "LOCAL_RANK"))}
    return dict(clean, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", **more)


class RecordTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "recording"

    def run_plain(self, *command, **more):
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env=environment(**more), timeout=120, check=False)

    def record(self, *command, options=(), **more):
        return self.run_plain(COMMAND, "record", "--out", self.out, *options, "--", *command, **more)

    def train(self, *arguments, options=("--wait", "2", "--steps", "5"), **more):
        return self.record(TORCH_PYTHON, TRAIN, *arguments, options=options, **more)

    def manifest(self):
        manifest = json.loads((self.out / "manifest.json").read_text())
        self.assertEqual(manifest["schema"], "paceline/recording/1")
        return manifest

    def steps(self):
        """Recorded steps by rank, None where a rank has none."""
        return {row["rank"]: row["steps"] and (row["steps"]["first"], row["steps"]["last"])
                for row in self.manifest()["ranks"]}

    def diagnosis(self):
        run = self.run_plain(COMMAND, "diagnose", self.out, "--json")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr, "")
        return json.loads(run.stdout)

    def trace(self, rank):
        with gzip.open(self.out / f"rank-{rank}.json.gz", "rt", encoding="utf-8") as text:
            return json.load(text)


class WithoutTorch(RecordTest):
    def test_passes_exit_status_and_output_through_and_says_why_nothing_was_recorded(self):
        run = self.record("sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((run.returncode, run.stdout), (7, "out\n"))
        self.assertIn("err\n", run.stderr)
        self.assertIn("nothing recorded: no Python started with the hook", run.stderr)
        self.assertFalse(self.out.exists())

    def test_a_script_without_torch_runs_and_the_recording_says_that_torch_was_never_imported(self):
        run = self.record(sys.executable, "-c", "print('hello')")
        self.assertEqual((run.returncode, run.stdout), (3, "hello\n"))
        self.assertEqual(run.stderr, "paceline: nothing recorded: the command never imported torch\n")

    def test_usage_not_found_not_executable_and_killed(self):
        self.assertEqual(self.run_plain(COMMAND, "record").returncode, 2)
        self.assertEqual(self.record("/nowhere/train").returncode, 127)
        self.assertEqual(self.record("/").returncode, 126)
        self.assertEqual(self.record("sh", "-c", "kill -9 $$").returncode, 128 + 9)
        for wrong in (("--steps", "0"), ("--steps", "5-2"), ("--steps", "x"), ("--steps", "3-4", "--wait", "2")):
            run = self.record("true", options=wrong)
            self.assertEqual((run.returncode, run.stderr.count("\n")), (2, 1), run.stderr)

    def test_a_folder_that_is_not_empty_is_left_alone_and_the_command_does_not_run(self):
        self.out.mkdir()
        (self.out / "mine").write_text("")
        run = self.record("touch", self.folder / "ran")
        self.assertEqual((run.returncode, run.stderr.count("\n")), (3, 1), run.stderr)
        self.assertEqual([path.name for path in self.out.iterdir()], ["mine"])
        self.assertFalse((self.folder / "ran").exists())

    def test_options_of_the_command_and_further_double_dashes_belong_to_the_command(self):
        run = self.record(sys.executable, "-c", "import sys; print(sys.argv[1:])", "--out", "x", "--", "-h", "--steps")
        self.assertEqual(run.stdout, "['--out', 'x', '--', '-h', '--steps']\n")

    def test_a_sitecustomize_of_the_user_still_runs(self):
        site = self.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = __file__\nrest = 5\n")
        show = "import builtins, sitecustomize; print(builtins.mine, sitecustomize.rest)"
        plain = self.run_plain(sys.executable, "-c", show, PYTHONPATH=str(site))
        run = self.record(sys.executable, "-c", show, PYTHONPATH=str(site))
        self.assertEqual(run.stdout, plain.stdout)
        self.assertEqual(plain.stdout, f"{site}/sitecustomize.py 5\n")

    def test_a_sitecustomize_that_fails_fails_as_without_recording(self):
        (self.folder / "sitecustomize.py").write_text("raise ValueError('mine')\n")
        plain = self.run_plain(sys.executable, "-c", "print(1)", PYTHONPATH=str(self.folder))
        run = self.record(sys.executable, "-c", "print(1)", PYTHONPATH=str(self.folder))
        self.assertEqual(run.stdout, plain.stdout)
        self.assertIn(plain.stderr, run.stderr)

    def test_signals_reach_the_command(self):
        job = subprocess.Popen([COMMAND, "record", "--out", str(self.out), "--", sys.executable, "-c",
                                "import signal, sys, time\n"
                                "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
                                "print('ready', flush=True)\ntime.sleep(60)"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment())
        self.assertEqual(job.stdout.readline(), b"ready\n")
        job.terminate()
        self.assertEqual(job.wait(timeout=30), 9)
        job.stdout.close()

    def test_the_installed_command_finds_its_hook_beside_itself(self):
        build = pathlib.Path(COMMAND).parent.parent
        if not (build / "cmake_install.cmake").exists():
            self.skipTest("the command is not in a build tree")
        subprocess.run(["cmake", "--install", str(build), "--prefix", str(self.folder / "usr")], check=True,
                       capture_output=True)
        run = self.run_plain(self.folder / "usr" / "bin" / "paceline", "record", "--out", self.out, "--", sys.executable,
                             "-c", "import os; print(os.environ['PYTHONPATH'].split(':')[0])")
        self.assertEqual(run.stdout.strip(), str(self.folder / "usr" / "share" / "paceline" / "record" / "hook"))


@unittest.skipUnless(HAS_TORCH, "no torch")
class WithTorch(RecordTest):
    def test_a_spawned_job_is_recorded_and_diagnose_names_the_rank_that_sleeps(self):
        arguments = ("spawn", "--steps", "16", "--sleep-rank", "1")
        plain = self.run_plain(TORCH_PYTHON, TRAIN, *arguments)
        run = self.train(*arguments, options=("--wait", "4", "--steps", "10"))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, plain.stdout)
        self.assertEqual(self.steps(), {0: (4, 13), 1: (4, 13)})
        self.assertRegex(run.stderr, r"recorded 2 of 2 ranks, steps 4-13, in .*\n.*overhead in CPU time, mean of 2 ranks: "
                                     r"[+-]\d+ % in a recorded step.*\n.*next: paceline diagnose ")
        result = self.diagnosis()
        self.assertEqual(result["late_rank"], 1)
        self.assertEqual([len(rank["steps"]) for rank in result["ranks"]], [10, 10])
        names = {event["name"] for event in self.trace(1)["traceEvents"] if event["name"].startswith("ProfilerStep")}
        self.assertEqual(names, {f"ProfilerStep#{number}" for number in range(4, 14)})

    def test_clock_anchors_enclose_the_recorded_steps(self):
        self.train("spawn")
        for row in self.manifest()["ranks"]:
            before, after = row["clock"]["before"], row["clock"]["after"]
            trace = self.trace(row["rank"])
            base = trace.get("baseTimeNanoseconds", 0)
            for event in trace["traceEvents"]:
                if not event["name"].startswith("ProfilerStep"):
                    continue
                begin = base + event["ts"] * 1000
                self.assertGreater(begin, before["realtime_ns"] - 100_000)
                self.assertLess(begin + event["dur"] * 1000, after["realtime_ns"] + 100_000)
            realtime = after["realtime_ns"] - before["realtime_ns"]
            self.assertLess(abs(realtime - (after["monotonic_ns"] - before["monotonic_ns"])), 1_000_000)

    def test_two_processes_with_the_variables_of_torchrun(self):
        launcher = self.folder / "launch.py"
        launcher.write_text(
            "import os, subprocess, sys\n"
            "ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env=dict(os.environ, RANK=str(rank),\n"
            "         LOCAL_RANK=str(rank), WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT='29541'))\n"
            "         for rank in range(2)]\n"
            "sys.exit(max(rank.wait() for rank in ranks))\n")
        run = self.record(TORCH_PYTHON, launcher, TRAIN, "--steps", "16", "--sleep-rank", "0", "--exit", "4",
                          options=("--steps", "2-13"))
        self.assertEqual(run.returncode, 4)
        self.assertEqual(self.steps(), {0: (2, 13), 1: (2, 13)})
        self.assertEqual([row["local_rank"] for row in self.manifest()["ranks"]], [0, 1])
        self.assertEqual(self.diagnosis()["late_rank"], 0)

    def test_a_job_that_crashes_keeps_what_was_recorded_before_on_all_ranks(self):
        run = self.train("spawn", "--crash-rank", "1", "--crash-step", "4", options=("--steps", "1-9"))
        self.assertEqual(run.returncode, 1)
        self.assertIn("on purpose", run.stderr)
        self.assertEqual(self.steps(), {0: (1, 3), 1: (1, 3)})
        self.assertIn("3 of the 9 steps asked for", run.stderr)
        self.assertEqual(len(self.diagnosis()["ranks"]), 2)

    def test_ctrl_c_reaches_the_job_and_what_was_recorded_is_kept(self):
        mark = self.folder / "mark"
        keyboard, terminal = os.openpty()
        self.addCleanup(os.close, keyboard)
        job = subprocess.Popen([COMMAND, "record", "--out", str(self.out), "--steps", "1-500", "--", TORCH_PYTHON, TRAIN,
                                "spawn", "--steps", "1000", "--sleep-rank", "0", "--touch-step", "8", "--touch", str(mark)],
                               stdin=terminal, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(),
                               start_new_session=True, text=True,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(terminal)
        deadline = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.write(keyboard, b"\x03")
        _, err = job.communicate(timeout=60)
        self.assertNotEqual(job.returncode, 0)
        steps = self.steps()
        self.assertEqual(set(steps), {0, 1}, err)
        for kept in steps.values():
            self.assertTrue(kept, err)
            self.assertEqual(kept[0], 1)
            self.assertGreaterEqual(kept[1], 6)

    def test_fewer_steps_than_the_wait_say_so(self):
        run = self.train("spawn", "--steps", "3", options=("--wait", "50"))
        self.assertEqual(run.returncode, 3)
        self.assertIn("nothing recorded: the job made 3 steps (numbered from 0) and the first to record was step 50",
                      run.stderr)

    def test_a_job_that_is_not_distributed_says_so_and_records_when_told_its_rank(self):
        run = self.train("alone")
        self.assertEqual(run.returncode, 3)
        self.assertIn("nothing recorded: no distributed job", run.stderr)
        self.assertEqual(self.train("alone", RANK="0", WORLD_SIZE="1").returncode, 0)
        self.assertEqual(self.steps(), {0: (2, 6)})

    def test_two_optimizers_make_one_step(self):
        self.assertEqual(self.train("spawn", "--two-optimizers").returncode, 0)
        self.assertEqual(self.steps(), {0: (2, 6), 1: (2, 6)})
        events = self.trace(0)["traceEvents"]
        for step in [event for event in events if event["name"].startswith("ProfilerStep")]:
            inside = [event["name"] for event in events if event["name"].startswith("Optimizer.step")
                      and step["ts"] <= event["ts"] < step["ts"] + step["dur"]]
            self.assertEqual(inside, ["Optimizer.step#SGD.step", "Optimizer.step#Adam.step"])

    def test_data_loader_workers_are_left_alone(self):
        plain = self.run_plain(TORCH_PYTHON, TRAIN, "spawn", "--workers", "2")
        run = self.train("spawn", "--workers", "2")
        self.assertEqual((run.returncode, run.stdout), (0, plain.stdout), run.stderr)
        self.assertEqual(self.steps(), {0: (2, 6), 1: (2, 6)})

    def test_a_profiler_of_the_script_comes_first(self):
        run = self.train("spawn", "--own-profiler", "5")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("own profiler: True", run.stdout)
        self.assertIn("the script's own profiler started; 3 of 5 steps recorded", run.stderr)
        self.assertEqual(self.steps(), {0: (2, 4), 1: (2, 4)})

    def test_steps_that_a_scaler_leaves_out_are_steps(self):
        script = self.folder / "scaled.py"
        script.write_text(
            "import torch\n"
            "model = torch.nn.Linear(4, 1)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "scaler = torch.cuda.amp.GradScaler(enabled=False)\n"
            "for step in range(10):\n"
            "    optimizer.zero_grad()\n"
            "    model(torch.randn(2, 4)).sum().backward()\n"
            "    if step % 2:\n"
            "        optimizer.step = lambda: None\n"
            "    scaler.step(optimizer)\n"
            "    vars(optimizer).pop('step', None)\n")
        run = self.record(TORCH_PYTHON, script, options=("--wait", "2", "--steps", "5"), RANK="0", WORLD_SIZE="1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.steps(), {0: (2, 6)})

    def test_a_fault_of_the_hook_is_one_line_and_the_job_goes_on(self):
        script = self.folder / "breaks.py"
        script.write_text("import torch\ntorch.profiler._KinetoProfile = None\nimport runpy, sys\n"
                          "del sys.argv[0]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n")
        run = self.record(TORCH_PYTHON, script, TRAIN, "alone", options=("--wait", "2"), RANK="0", WORLD_SIZE="1")
        self.assertEqual(run.stdout.count("step "), 12)
        self.assertEqual(run.returncode, 3)
        said = [line for line in run.stderr.splitlines() if line.startswith("paceline")]
        self.assertEqual(len(said), 2, run.stderr)
        self.assertIn("paceline record: rank 0: not recorded: TypeError", run.stderr)

    def test_overhead_of_the_whole_command_on_request(self):
        run = self.train("spawn", "--steps", "8", options=("--wait", "2", "--steps", "3", "--measure-overhead"))
        self.assertEqual(run.stdout.count("step 0:"), 1)
        self.assertRegex(run.stderr, r"whole command: [\d.]+ s of CPU time against [\d.]+ s without recording")


if __name__ == "__main__":
    if not HAS_TORCH:
        print(f"SKIPPED: no torch in {TORCH_PYTHON}: the tests on real jobs do not run; apt-get install python3-torch, or "
              "name a Python in PACELINE_TORCH_PYTHON", flush=True)
    unittest.main()
