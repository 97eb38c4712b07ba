"""What the acceptance and soak programs of all rooms share (python3, standard library only).

A room's program tests/acceptance/<room>.py reads

    import lib
    room = lib.Room("trace")

    @room.case("late arrivals of rank 7")
    def late_arrivals(case):
        folder = lib.data("dpro/hta/nccl_data")              # NO DATA when it is not there
        result = lib.paceline("diagnose", folder)
        case.report(result.json["late"]["7"], "==", 5, n=8, data=[folder])

    room.finish()

and prints one line per case: name, value, bound, n cases, data hash, verdict. Only `ok` passes. A soak program
<room>_soak.py is the same with lib.Soak; its figures are stored and shown by the acceptance of the room.
"""
import dataclasses
import hashlib
import json
import operator
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "release"
COMMAND = BUILD / "cli" / "paceline"
MEASURE = BUILD / "tests" / "measure"
REFERENCE_LOOP = BUILD / "tests" / "reference_loop"

OK, SHORT, NO_DATA, NO_PEER = "ok", "FALLS SHORT", "NO DATA", "NO PEER"
COMPARE = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "==": operator.eq}


class NoData(Exception):
    """The data a case needs is not here."""


class NoPeer(Exception):
    """The program a case compares with is not here."""


# ---------------------------------------------------------------- data and peers


def data(relative):
    """A file or folder below $PACELINE_DATA."""
    folder = os.environ.get("PACELINE_DATA")
    if not folder:
        raise NoData("PACELINE_DATA is not set")
    path = pathlib.Path(folder) / relative
    if not path.exists():
        raise NoData(f"{path} is not there")
    return path


def data_hash(paths):
    """Short SHA-256 over names and contents of the files used, in sorted order; '-' for none."""
    files = set()
    for path in map(pathlib.Path, paths):
        files.update(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else files.add(path)
    if not files:
        return "-"
    whole = hashlib.sha256()
    for file in sorted(files):
        part = hashlib.sha256()
        with open(file, "rb") as stream:
            while block := stream.read(1 << 20):
                part.update(block)
        whole.update(f"{file.name} {part.hexdigest()}\n".encode())
    return whole.hexdigest()[:12]


def peer_python():
    """The interpreter of the virtual environment with the peers of bench/peers.txt, set up when it is not there."""
    python = ROOT / "build" / "peers" / "bin" / "python"
    setup = ROOT / "bench" / "setup_peers.sh"
    if not python.exists() and setup.exists():
        subprocess.run([str(setup)], cwd=ROOT, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)
    if not python.exists():
        raise NoPeer(f"{python} is not there; run bench/setup_peers.sh")
    return python


# ---------------------------------------------------------------- running and measuring


@dataclasses.dataclass
class Result:
    status: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def paceline(*arguments, as_json=True, timeout=1200):
    """Runs the command, with --json unless told otherwise; the caller judges the exit status."""
    command = [str(COMMAND), *map(str, arguments), *(["--json"] if as_json else [])]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                         timeout=timeout, check=False)
    return Result(run.returncode, run.stdout, run.stderr)


@dataclasses.dataclass
class Usage:
    """What one run of a command took, its finished children included."""
    seconds: float  # user + system
    wall: float
    peak_bytes: int  # of the largest process of the tree
    status: int
    loop_seconds: float = 0.0  # the reference loop beside it


def measure(command, env=None, timeout=1200):
    """One run. A small program starts it: a child of this interpreter would begin with this interpreter's peak."""
    with tempfile.NamedTemporaryFile("r", suffix=".txt") as note:
        run = subprocess.Popen([str(MEASURE), note.name, *map(str, command)], stdin=subprocess.DEVNULL, env=env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        try:
            _, err = run.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            raise
        fields = note.read().split()
    if len(fields) != 4:
        raise RuntimeError(f"cannot run {command[0]}: {err.decode(errors='replace').strip()}")
    return Usage(float(fields[0]), float(fields[1]), int(fields[2]), int(fields[3]))


def cpu_time(command, runs=5, expect=(0,), env=None):
    """The least user+system time and the largest peak of `runs` runs, and the reference loop's least of the same runs."""
    usages, loops = [], []
    for _ in range(runs):
        loops.append(measure([REFERENCE_LOOP]).seconds)
        usages.append(measure(command, env=env))
        if usages[-1].status not in expect:
            raise RuntimeError(f"'{' '.join(map(str, command))}' ended with {usages[-1].status}, expected {expect}")
    best = min(usages, key=lambda usage: usage.seconds)
    return dataclasses.replace(best, wall=min(usage.wall for usage in usages),
                               peak_bytes=max(usage.peak_bytes for usage in usages), loop_seconds=min(loops))


# ---------------------------------------------------------------- cases and lines


def _text(value, unit=""):
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}".strip()


def _line(name, value, bound, count, data_id, verdict, note=""):
    tail = f"  ({note})" if note else ""
    print(f"{name:<56}  {value:>16}  {bound:>16}  {count:>8}  {data_id:<12}  {verdict}{tail}", flush=True)


class Case:
    """One named question; may report several figures."""

    def __init__(self, room, name):
        self.room, self.name = room, name

    def report(self, value, compare, bound, n=1, data=(), unit="", name=None, note="", usage=None, **stored):
        """A figure against its bound, e.g. report(0.41, "<=", 0.6, unit="s", usage=usage); with `usage` of
        cpu_time() the line carries the time of the reference loop."""
        if usage:
            note = ", ".join(filter(None, [note, f"reference loop {usage.loop_seconds:.3f} s"]))
        verdict = OK if value is not None and COMPARE[compare](value, bound) else SHORT
        self.room.add(name or self.name, value, compare, bound, n, data, unit, verdict, note, **stored)


class Room:
    def __init__(self, name):
        self.name = name
        self.verdicts = []
        self._header()

    def _header(self):
        _line(f"{self.name}: acceptance", "value", "bound", "cases", "data", "verdict")

    def case(self, name):
        """Decorator: runs the function at once; what it lacks or throws becomes a line and the next case goes on."""
        def run(function):
            try:
                function(Case(self, name))
            except NoData as missing:
                self._missing(name, NO_DATA, str(missing))
            except NoPeer as missing:
                self._missing(name, NO_PEER, str(missing))
            except Exception as fault:  # pylint: disable=broad-except
                traceback.print_exc()
                self._missing(name, SHORT, f"{type(fault).__name__}: {fault}".splitlines()[0])
            return function
        return run

    def _missing(self, name, verdict, why):
        self.verdicts.append(verdict)
        _line(name, "-", "-", "-", "-", verdict, why)

    def add(self, name, value, compare, bound, n, data, unit, verdict, note):
        self.verdicts.append(verdict)
        _line(name, _text(value, unit), f"{compare} {_text(bound, unit)}", n, data_hash(data), verdict, note)

    def finish(self):
        """Shows the stored figures of the room's soak, sums up and ends the program."""
        if (ROOT / "tests" / "acceptance" / f"{self.name}_soak.py").exists():
            self._show_soak()
        passed = self.verdicts.count(OK)
        print(f"{self.name}: {passed} of {len(self.verdicts)} ok")
        sys.exit(0 if self.verdicts and passed == len(self.verdicts) else 1)

    def _show_soak(self):
        stored = soak_file(self.name)
        figures = json.loads(stored.read_text(encoding="utf-8"))["figures"] if stored.exists() else []
        if not figures:
            self._missing("soak", SHORT, f"nothing stored; run: make soak ROOM={self.name}")
        for figure in figures:
            changed = changed_since(self.name, figure["commit"])
            verdict = OK if COMPARE[figure["compare"]](figure["value"], figure["bound"]) and not changed else SHORT
            note = f"soak at {figure['commit'][:10]}, seed {figure['seed']}" + (f"; {changed}" if changed else "")
            self.verdicts.append(verdict)
            _line(figure["name"], _text(figure["value"], figure["unit"]),
                  f"{figure['compare']} {_text(figure['bound'], figure['unit'])}", figure["n"], figure["data"], verdict,
                  note)


# ---------------------------------------------------------------- soak


def soak_file(room):
    return ROOT / "tests" / "acceptance" / "soak" / f"{room}.json"


def _git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


def changed_since(room, commit):
    """Why a figure of `commit` no longer speaks for the room, or ''; unit tests and pages do not count."""
    product = (f"paceline/{room}", f":!paceline/{room}/**_test.cc", f":!paceline/{room}/*_test.cc", ":!*.md")
    log = _git("log", "--format=%h", f"{commit}..HEAD", "--", *product)
    if log.returncode != 0:
        return f"room changed since: commit {commit[:10]} is unknown here"
    if log.stdout.strip():
        return f"room changed since: {len(log.stdout.split())} commits"
    if _git("status", "--porcelain", "--", *product).stdout.strip():
        return "room changed since: uncommitted changes"
    return ""


class Soak(Room):
    """Like Room; every figure carries a seed and is stored with the commit it was measured at."""

    def __init__(self, name):
        changed = changed_since(name, "HEAD")
        if changed:
            sys.exit(f"paceline: soak of {name}: paceline/{name} has uncommitted changes, expected a committed state "
                     f"that the figures can name; commit or stash them")
        self.commit = _git("rev-parse", "HEAD").stdout.strip()
        self.figures = []
        super().__init__(name)

    def _header(self):
        _line(f"{self.name}: soak at {self.commit[:10]}", "value", "bound", "cases", "data", "verdict")

    def add(self, name, value, compare, bound, n, data, unit, verdict, note, seed=0):
        super().add(name, value, compare, bound, n, data, unit, verdict, note)
        self.figures.append({"name": name, "value": value, "compare": compare, "bound": bound, "unit": unit, "n": n,
                             "seed": seed, "data": data_hash(data), "commit": self.commit})

    def finish(self):
        complete = self.verdicts and all(verdict in (OK, SHORT) for verdict in self.verdicts) and self.figures
        if complete and len(self.figures) == len(self.verdicts):
            stored = soak_file(self.name)
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.write_text(json.dumps({"figures": self.figures}, indent=2) + "\n", encoding="utf-8")
            print(f"{self.name}: stored in {stored.relative_to(ROOT)}; commit it")
        else:
            print(f"{self.name}: not stored, because a case could not be measured")
        sys.exit(0 if complete and self.verdicts.count(OK) == len(self.verdicts) else 1)
