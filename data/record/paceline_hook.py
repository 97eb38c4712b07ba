# SPDX-License-Identifier: Apache-2.0
"""Records some training steps of this process with PyTorch's profiler; `paceline record` sees to it that it is loaded.

What counts as a step. The script is not changed, so the hook watches optimizers: a step ends when the optimizer that
closes it returns from step(), and the next begins there (so zero_grad() behind step() belongs to the next). Where there
is one optimizer, it closes. Where there are several, the first round tells: it ends as soon as one of them steps a
second time, and the last one before that closes every step from then on. A step() that GradScaler leaves out because
of infinities counts too. Steps are numbered from 0; step 0 has no beginning that could be seen, so 1 is the first that
can be recorded.

Which process. One that is a rank when recording is to begin: torch.distributed is initialised, or the launcher's
environment names a rank. Others, data loader workers among them, make no steps or are left alone.

What is written. rank-N.json.gz in PACELINE_RECORD_OUT (Kineto's own export, or paceline_kineto.py where PyTorch has no
Kineto), and .notes/rank-N.json with what the command needs for its manifest. Both appear under their names complete.

The job comes first. Whatever fails here is one line on standard error. When the job ends, crashes or is interrupted
while it is recorded, the steps so far are kept; so they are on SIGTERM, which launchers send to the ranks that are
left when one fails. A profiler that the script itself starts takes over: two cannot run.
"""
import atexit
import functools
import gzip
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import weakref

import paceline_kineto

WAITING, WARM, RECORDING, DONE = "waiting", "warm", "recording", "done"
RANK_VARIABLES = (("RANK", "WORLD_SIZE", "LOCAL_RANK"),
                  ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
                  ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
                  ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"))
SAMPLES = 50  # steps before the recording that its cost is measured against: the last ones
SECONDS_TO_NOTICE, SECONDS_TO_SAVE = 3, 20  # torchrun kills 30 s after SIGTERM


def _clock_anchor():
    """The real time of one moment of the monotonic clock: the closest of a few readings."""
    best = None
    for _ in range(5):
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, real, (before + after) // 2)
    return {"realtime_ns": best[1], "monotonic_ns": best[2], "uncertainty_ns": best[0]}


def _integer(name):
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def _write_whole(path, text):
    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(part, path)


class _Cost:
    """CPU and wall time between two readings."""

    def __init__(self):
        self.cpu, self.wall = time.process_time_ns(), time.monotonic_ns()

    def since(self):
        return time.process_time_ns() - self.cpu, time.monotonic_ns() - self.wall


def _median(costs):
    if not costs:
        return None
    middle = len(costs) // 2
    return {"steps": len(costs), "cpu_ns": sorted(cost[0] for cost in costs)[middle],
            "wall_ns": sorted(cost[1] for cost in costs)[middle]}


class Recorder:
    """The recording of one process."""

    def __init__(self, torch):
        self.torch = torch
        self.out = os.environ["PACELINE_RECORD_OUT"]
        self.first = max(1, int(os.environ.get("PACELINE_RECORD_FIRST", "5")))
        self.count = max(1, int(os.environ.get("PACELINE_RECORD_STEPS", "5")))
        self.with_stack = os.environ.get("PACELINE_RECORD_STACKS") == "1"
        self.optimizers = weakref.WeakSet()
        self.abandoned = None
        self.guard = None
        self.reset()

    def reset(self):
        """As at the start; in a forked child also lets go of what belongs to the parent."""
        if self.guard:
            self.guard.drop()
        # Kept alive: taking them down would end what the parent has under way.
        self.abandoned = (self.abandoned, getattr(self, "profile", None), getattr(self, "annotation", None))
        self.pid = os.getpid()
        self.state, self.reason = WAITING, ""
        self.thread, self.depth = None, 0
        self.closer, self.round, self.others = None, [], 0
        self.steps = 0  # ended so far, which is also the number of the one under way
        self.recorded = 0
        self.rank = self.world = self.local_rank = None
        self.profile = self.annotation = self.guard = None
        self.step_cost = None
        self.before, self.during = [], []
        self.start_cost = self.stop_cost = (0, 0)
        self.anchors = {}
        self.file = None

    # ------------------------------------------------------------ steps

    def enter(self):
        """Whether the hook watches a step() of this thread."""
        if self.state == DONE:
            return False
        if self.thread is None:
            self.thread = threading.get_ident()
        return self.thread == threading.get_ident()

    def closes_step(self, optimizer):
        closer = self.closer() if self.closer else None
        if closer is None:
            self.closer = None
            if len(self.optimizers) > 1:
                if not any(seen() is optimizer for seen in self.round):
                    self.round.append(weakref.ref(optimizer))
                    return False
                closer = self.round[-1]() or optimizer
                self.steps += 1
            else:
                closer = optimizer
            self.closer, self.round, self.others = weakref.ref(closer), [], 0
        if closer is optimizer:
            self.others = 0
            return True
        self.others += 1
        if self.others > 100:  # the closer is out of use
            self.closer = None
        return False

    def stepped(self, optimizer):
        """An optimizer has returned from step()."""
        try:
            if self.closes_step(optimizer):
                self.step_ended()
        except Exception as error:  # the job goes on whatever happens here
            self.fail(error)

    def step_ended(self):
        cost = self.step_cost.since() if self.step_cost else None
        self.steps += 1
        if self.state == RECORDING:
            self.annotation.__exit__(None, None, None)
            self.annotation = None
            self.during.append(cost)
            self.recorded += 1
            if self.recorded == self.count:
                self.finish()
        elif self.state == WAITING and cost:
            self.before = self.before[1 - SAMPLES:] + [cost]
        if self.step_cost is None:
            self.identify()
            self.write_note()
            self.at_exit()
        if self.state == WAITING and self.steps >= self.first - 1:
            self.prepare()
        if self.state == WARM and self.steps >= self.first:
            self.start()
        if self.state == RECORDING:
            self.annotation = self.torch.autograd.profiler.record_function("ProfilerStep#%d" % self.steps)
            self.annotation.__enter__()
        self.step_cost = _Cost()

    # ------------------------------------------------------------ who this is

    def identify(self):
        distributed = self.torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        for rank, world, local in RANK_VARIABLES:
            if _integer(rank) is None:
                continue
            if self.rank is None:
                self.rank, self.world = _integer(rank), _integer(world) or 1
            self.local_rank = _integer(local)
            break

    def backend(self):
        distributed = self.torch.distributed
        return distributed.get_backend() if distributed.is_available() and distributed.is_initialized() else None

    # ------------------------------------------------------------ the profiler

    def prepare(self):
        """One step ahead, so that the profiler's own warm-up is not in the recording."""
        if self.rank is None:
            self.identify()
        if self.rank is None:
            self.give_up("no rank")
            return
        target = os.path.join(self.out, "rank-%d.json.gz" % self.rank)
        if os.path.exists(target):
            self.give_up("recorded before")  # a restarted job, or the next one of the same command
            return
        if self.torch.autograd._profiler_enabled():
            self.give_up("the script's own profiler is running", say=True)
            return
        self.file = target
        cost = _Cost()
        self.profile = self.torch.profiler._KinetoProfile(record_shapes=True, with_stack=self.with_stack)
        self.state = WARM
        self.ours(self.profile.prepare_trace)
        self.start_cost = cost.since()

    def start(self):
        self.anchors["before"] = _clock_anchor()
        cost = _Cost()
        self.base_ns = time.time_ns() // 10**9 * 10**9
        if threading.current_thread() is threading.main_thread():
            self.guard = _SigtermGuard.put_up(self)
        self.ours(self.profile.start_trace)
        self.state, self.first = RECORDING, self.steps
        spent = cost.since()
        self.start_cost = (self.start_cost[0] + spent[0], self.start_cost[1] + spent[1])
        self.write_note()

    def ours(self, call):
        self.is_ours = True
        try:
            call()
        finally:
            self.is_ours = False

    is_ours = False

    def other_profiler(self):
        """The script is about to start a profiler of its own."""
        if self.is_ours or os.getpid() != self.pid:
            return
        if self.state == RECORDING:
            self.finish("the script's own profiler started")
        elif self.state == WARM:
            self.give_up("the script's own profiler started", say=True)

    def finish(self, reason=""):
        """Stops the profiler and writes the steps recorded so far."""
        if self.state != RECORDING or os.getpid() != self.pid or threading.get_ident() != self.thread:
            return
        self.state, self.reason = DONE, reason
        try:
            self.anchors["after"] = _clock_anchor()
            cost = _Cost()
            result = self.stop()
            if self.recorded:
                self.write_trace(result)
            self.stop_cost = cost.since()
        except Exception as error:
            self.fail(error)
        finally:
            if self.guard:
                self.guard.take_down()
            self.guard = self.profile = None
        self.write_note()
        if reason:
            _say(self.rank, "%s; %d of %d steps recorded" % (reason, self.recorded, self.count))

    def stop(self):
        """The profiler's result. profile.stop_trace() would also build its tables in Python, which takes long."""
        profiler = self.torch.autograd.profiler
        if not self.torch.profiler.kineto_available():
            time.sleep(0.05)  # gloo's threads close a collective's record just after the waiting thread has gone on
        elif self.torch.cuda.is_available() and self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        result = profiler._disable_profiler()
        getattr(profiler, "_run_on_profiler_stop", lambda: None)()
        self.profile.profiler.enabled = False
        return result

    def write_trace(self, result):
        part = "%s.%d.part" % (os.path.join(self.out, ".notes", os.path.basename(self.file)), os.getpid())
        try:
            if self.torch.profiler.kineto_available():
                result.save(part + ".plain")
                try:
                    with open(part + ".plain", "rb") as plain, gzip.open(part, "wb", compresslevel=1) as packed:
                        shutil.copyfileobj(plain, packed, 1 << 20)
                finally:
                    os.unlink(part + ".plain")
            else:
                recorder = {"recorded_with": "paceline record, PyTorch %s" % self.torch.__version__,
                            "clock": self.anchors}
                paceline_kineto.write_trace(part, self.rank, self.world, result, recorder, self.base_ns,
                                         self.backend(), compresslevel=1)
            os.replace(part, self.file)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise

    # ------------------------------------------------------------ ends

    def give_up(self, reason, say=False):
        self.state, self.reason, self.profile = DONE, reason, None
        self.write_note()
        if say:
            _say(self.rank, "not recorded: " + reason)

    def fail(self, error):
        """Any fault of the hook: one line, and the job goes on."""
        self.state = DONE
        self.reason = ("%s: %s" % (type(error).__name__, error)).splitlines()[0]
        self.profile, self.annotation = None, None
        try:
            if self.torch.autograd._profiler_enabled():
                self.torch.autograd.profiler._disable_profiler()
        except Exception:
            pass
        try:
            self.write_note()
        except Exception:
            pass
        _say(self.rank, "not recorded: " + self.reason)

    def at_exit(self):
        atexit.register(self.exit)
        if "multiprocessing.util" in sys.modules:  # forked children of multiprocessing end without atexit
            sys.modules["multiprocessing.util"].Finalize(None, self.exit, exitpriority=1000)

    def exit(self):
        try:
            if os.getpid() != self.pid:
                return
            if self.state == RECORDING:
                self.finish("the job ended")
            elif self.state != DONE:
                self.write_note()
        except Exception as error:
            self.fail(error)

    def write_note(self):
        """Tells the command how far this rank is."""
        if self.rank is None:
            _note(self.out, "no-rank")
            return
        # What did not become the rank's recording must not hide what did.
        if self.reason == "recorded before":
            return
        written = self.state == DONE and self.file and os.path.exists(self.file)
        _write_whole(os.path.join(self.out, ".notes", "rank-%d.json" % self.rank), json.dumps({
            "rank": self.rank, "world_size": self.world, "local_rank": self.local_rank,
            "host": socket.gethostname(), "pid": self.pid, "torch": self.torch.__version__,
            "kineto": self.torch.profiler.kineto_available(), "backend": self.backend(),
            "state": self.state, "reason": self.reason, "steps_seen": self.steps,
            "first_step": self.first if self.recorded else None, "steps": self.recorded,
            "file": os.path.basename(self.file) if written and self.recorded else None,
            "clock": self.anchors,
            "overhead": {"start_cpu_ns": self.start_cost[0], "start_wall_ns": self.start_cost[1],
                         "stop_cpu_ns": self.stop_cost[0], "stop_wall_ns": self.stop_cost[1],
                         "step_before": _median(self.before), "step_recorded": _median(self.during)}}))


class _SigtermGuard:
    """Saves the recording when SIGTERM would end the process; up only while steps are recorded.

    Python runs a handler only between two instructions, and a rank whose peer has died may never leave a collective. So
    a thread, woken by the signal itself, ends the process when the handler does not get to run: SIGTERM still kills.
    """

    def __init__(self, recorder):
        self.recorder, self.pid = recorder, os.getpid()
        self.began, self.saved = threading.Event(), threading.Event()

    @classmethod
    def put_up(cls, recorder):
        """None where the script handles SIGTERM itself or uses the wake-up descriptor."""
        if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            return None
        guard = cls(recorder)
        guard.wake, guard.send = os.pipe()
        os.set_blocking(guard.send, False)
        before = signal.set_wakeup_fd(guard.send, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            os.close(guard.wake)
            os.close(guard.send)
            return None
        signal.signal(signal.SIGTERM, guard.handle)
        threading.Thread(target=guard.watch, name="paceline-record", daemon=True).start()
        return guard

    def handle(self, *_):
        self.began.set()
        self.recorder.finish("SIGTERM")  # nothing when it came while finish() was at work: take_down() follows

    def watch(self):
        while True:
            numbers = os.read(self.wake, 64)
            if not numbers:
                os.close(self.wake)
                return
            if signal.SIGTERM in numbers:
                if not self.began.wait(SECONDS_TO_NOTICE) or not self.saved.wait(SECONDS_TO_SAVE):
                    import ctypes
                    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
                    os.kill(self.pid, signal.SIGTERM)
                return

    def drop(self):
        """Back to the default; also in a forked child, whose parent keeps its own."""
        if signal.getsignal(signal.SIGTERM) == self.handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)

    def take_down(self):
        self.saved.set()
        self.drop()
        os.close(self.send)
        if self.began.is_set():
            os.kill(self.pid, signal.SIGTERM)


def _say(rank, text):
    sys.stderr.write("paceline record: %s%s\n" % ("" if rank is None else "rank %d: " % rank, text))


def _note(out, name):
    os.close(os.open(os.path.join(out, ".notes", name), os.O_CREAT | os.O_WRONLY, 0o644))


def _watch_steps(recorder, optimizer_class):
    """Makes step() of this class tell the recorder."""
    original = optimizer_class.step
    if getattr(original, "_paceline", False):
        return

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        if not recorder.enter():
            return original(self, *args, **kwargs)
        recorder.depth += 1
        try:
            result = original(self, *args, **kwargs)
        finally:
            recorder.depth -= 1
        if recorder.depth == 0:
            recorder.stepped(self)
        return result

    step._paceline = True
    optimizer_class.step = step


def _watch_optimizers(recorder, torch):
    base = torch.optim.Optimizer
    original = base.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        try:
            if recorder.state != DONE:
                recorder.optimizers.add(self)
                _watch_steps(recorder, type(self))
        except Exception as error:
            recorder.fail(error)

    base.__init__ = init


def _watch_scalers(recorder, torch):
    """GradScaler.step() leaves optimizer.step() out when gradients are infinite: the step has ended all the same."""
    classes = {getattr(module, "GradScaler", None) for module in (torch.cuda.amp, getattr(torch, "amp", None))}
    for scaler_class in classes - {None}:
        if "step" not in vars(scaler_class):
            continue
        original = scaler_class.step

        def step(self, optimizer, *args, _original=original, **kwargs):
            if not recorder.enter():
                return _original(self, optimizer, *args, **kwargs)
            recorder.depth += 1
            try:
                result = _original(self, optimizer, *args, **kwargs)
            finally:
                recorder.depth -= 1
            if recorder.depth == 0:
                recorder.stepped(optimizer)
            return result

        scaler_class.step = functools.wraps(original)(step)


def _watch_profilers(recorder, torch):
    """Only one profiler can run: the script's own comes first."""
    profile_class = torch.autograd.profiler.profile

    def watched(original):
        @functools.wraps(original)
        def call(self, *args, **kwargs):
            try:
                recorder.other_profiler()
            except Exception as error:
                recorder.fail(error)
            return original(self, *args, **kwargs)
        return call

    for name in ("__enter__", "_prepare_trace", "_start_trace"):
        if hasattr(profile_class, name):
            setattr(profile_class, name, watched(getattr(profile_class, name)))


def install(torch):
    """Called once, right after torch has been imported."""
    recorder = Recorder(torch)
    _watch_optimizers(recorder, torch)
    _watch_scalers(recorder, torch)
    _watch_profilers(recorder, torch)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.reset)
