"""Copies of recorded jobs with one change, which travels to the other ranks through the collectives as it would have.

Every rank's time is mapped by what the change adds to it; a collective ends as much later as its last member arrives
later, and what follows on every rank is moved along. Ranks share one clock (a job of one host, or made without offsets).
"""
import bisect
import decimal
import json
import pathlib

MS = 1_000_000


def _ns(microseconds):
    return int(decimal.Decimal(str(microseconds)) * 1000)


class Rank:
    def __init__(self, path):
        self.trace = json.loads(pathlib.Path(path).read_text(encoding="utf-8"), parse_float=decimal.Decimal)
        self.path = pathlib.Path(path)
        self.number = self.trace["distributedInfo"]["rank"]
        base = self.trace.get("baseTimeNanoseconds", 0)
        self.events = [event for event in self.trace["traceEvents"] if "ts" in event and event.get("ph") != "M"]
        for event in self.events:
            event["begin"] = _ns(event["ts"]) + base
            event["end"] = event["begin"] + _ns(event.get("dur", 0))
        slices = sorted((event for event in self.events if event["ph"] == "X"), key=lambda event: event["begin"])
        self.device = [event for event in slices if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        self.collectives = [event for event in self.device if is_collective(event)]
        self.compute = [event for event in self.device if event["cat"] == "kernel" and not is_collective(event)]
        self.steps = [event for event in slices
                      if event["name"].startswith("ProfilerStep#") and event.get("cat") == "user_annotation"]
        self.added = []   # (after, stretch until, ns) of own time
        self.moved = []   # (begin, end, shift before, shift behind) by collectives
        self.new = []     # events to add, at their final times

    def idle_moment(self, step):
        """The first moment from the step's begin on at which the device does nothing."""
        now = step["begin"]
        for event in self.device:
            if event["begin"] > now:
                break
            now = max(now, event["end"])
        return now

    def own(self, time):
        """What the change itself adds before `time`."""
        return sum(extra if time >= until else extra * (time - after) // (until - after)
                   for after, until, extra in self._added_before(time))

    def _added_before(self, time):
        return self.added[:bisect.bisect_left(self.added, (time,))]

    def shift(self, time):
        """By how much what was at `time` is later now. What began while a collective ran did not need it; where less is
        waited than before, time shrinks."""
        waited = 0
        for begin, end, before, behind in reversed(self.moved):
            if time > begin:
                rises = behind >= before
                inside = before if rises else before + (behind - before) * (time - begin) // max(end - begin, 1)
                waited = behind if time >= end else inside
                break
        return self.own(time) + waited

    def begin_of(self, event):
        return event["begin"] + self.shift(event["begin"]) - event.get("earlier", 0)

    def end_of(self, event):
        """Its end now: the host is held up inside what it does, kernels are not."""
        if "forced" in event:
            return event["forced"]
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            return event["end"] + self.shift(event["begin"]) + self.own(event["end"]) - self.own(event["begin"])
        return event["end"] + self.shift(event["end"])

    def write(self, folder):
        for event in self.events:
            start = self.begin_of(event)
            if "dur" in event:
                event["dur"] = f"{{{self.end_of(event) - start}}}"
            event["ts"] = self._us(start)
            for key in ("begin", "end", "forced", "earlier"):
                event.pop(key, None)
        for event in self.new:
            event["ts"], event["dur"] = self._us(event.pop("begin")), f"{{{event.pop('duration')}}}"
        self.trace["traceEvents"] += self.new
        text = json.dumps(self.trace, default=str)
        # Decimal microseconds of all digits, which a float does not hold.
        parts = text.split('"{')
        for i in range(1, len(parts)):
            number, rest = parts[i].split('}"', 1)
            value = int(number)
            parts[i] = f"{value // 1000}.{value % 1000:03d}{rest}"
        (folder / self.path.name).write_text("".join(parts), encoding="utf-8")

    def _us(self, time):
        return f"{{{time - self.trace.get('baseTimeNanoseconds', 0)}}}"


def is_collective(event):
    return event.get("cat") == "kernel" and "nccl" in event["name"].lower()


class Job:
    """`change` one of the methods below, then write()."""

    def __init__(self, folder):
        paths = [path for path in pathlib.Path(folder).rglob("*.json") if path.name != "truth.json"]
        self.ranks = sorted((Rank(path) for path in paths), key=lambda rank: rank.number)
        self.longer = {}  # index of a collective: ns
        self.order = self._match()

    def _match(self):
        """Collectives as lists of (rank, event), by the time their last member arrives: the n-th of a kernel name, of
        elements and of group on each rank belong together."""
        known = {}
        for rank in self.ranks:
            counts = {}
            for event in rank.collectives:
                args = event.get("args", {})
                key = (event["name"], str(args.get("Process Group Name")), str(args.get("Out msg nelems")))
                counts[key] = counts.get(key, -1) + 1
                known.setdefault((key, counts[key]), []).append((rank, event))
        return sorted(known.values(), key=lambda members: max(event["begin"] for _, event in members))

    def last_rank(self):
        """Who makes the others wait most."""
        waited = {}
        for members in self.order:
            begins = sorted((event["begin"], rank.number) for rank, event in members)
            waited[begins[-1][1]] = waited.get(begins[-1][1], 0) + begins[-1][0] - begins[-2][0]
        return self.ranks[max(range(len(self.ranks)), key=lambda i: waited.get(self.ranks[i].number, 0))]

    def slow_kernels(self, factor=1.3):
        rank, now = self.last_rank(), 0
        for event in rank.compute:
            begin = max(event["begin"], now)
            if event["end"] > begin:
                rank.added.append((begin, event["end"], int((event["end"] - begin) * (factor - 1))))
                now = event["end"]

    def pause(self, duration=5 * MS):
        """Nothing at all happens on a rank at the begin of each step, as soon as its device has nothing to do."""
        rank = self.last_rank()
        for step in rank.steps:
            moment = rank.idle_moment(step)
            rank.added.append((moment, moment, duration))
        return rank

    def late_start(self, duration=5 * MS):
        """A rank begins all it does later, its first step too."""
        rank = self.last_rank()
        moment = rank.steps[0]["begin"] - 1
        rank.added.append((moment, moment, duration * len(rank.steps)))

    def allocate(self, count=50, duration=100_000):
        """cudaMalloc after cudaMalloc where the device has nothing to do."""
        rank = self.pause(count * duration)
        rank.mallocs = [(moment, step, count, duration) for (moment, _, _), step in zip(rank.added, rank.steps)]

    def long_collective(self, duration=2 * MS):
        """The longest one of each step takes longer on all ranks."""
        for step in self.ranks[0].steps:
            inside = [i for i, members in enumerate(self.order)
                      if step["begin"] <= min(event["begin"] for _, event in members) < step["end"]]
            longest = max(inside, key=lambda i: min(event["end"] - event["begin"] for _, event in self.order[i]))
            self.longer[longest] = duration

    def serialise(self):
        """What is computed while a collective transfers is computed behind it."""
        transfers = {}
        for members in self.order:
            ready = max(event["begin"] for _, event in members)
            for rank, collective in members:
                transfers.setdefault(rank, []).append((ready, collective["end"]))
        for rank, windows in transfers.items():
            together = []  # transfers on several streams at once are one
            for ready, end in sorted(windows):
                if together and ready < together[-1][1]:
                    together[-1][1] = max(together[-1][1], end)
                else:
                    together.append([ready, end])
            for ready, end in together:
                starts = [event["begin"] for event in rank.compute if ready < event["begin"] < end]
                if not starts:
                    continue
                moment = min(starts) - 1
                rank.added.append((moment, moment, end - moment))
                for event in rank.collectives:  # those of the same window do not wait for the computation
                    if moment < event["begin"] < end:
                        event["earlier"] = end - moment

    def rename(self, count=200):
        """Kernels under another name, as a new library has them, the same ones on all ranks."""
        for rank in self.ranks:
            for event in rank.compute[:count]:
                event["name"] = "renamed_" + event["name"]

    def write(self, folder, overlap_stays=True):
        folder = pathlib.Path(folder)
        folder.mkdir()
        for index, members in enumerate(self.order):
            before = max(event["begin"] for _, event in members)
            now = max(rank.begin_of(event) for rank, event in members)
            later = now - before + self.longer.get(index, 0)
            for rank, event in members:
                event["forced"] = event["end"] + later
                at_begin = rank.shift(event["begin"]) - rank.own(event["begin"])
                at_end = later - rank.own(event["end"])
                # What is computed beyond its end goes on while the others still wait.
                beyond = max((one["end"] - event["end"] for one in rank.compute
                              if one["begin"] < event["end"] < one["end"]), default=0)
                if at_end > at_begin:
                    at_end = max(at_end - beyond, at_begin)
                if not overlap_stays:
                    at_end = max(at_end, at_begin)
                rank.moved.append((event["begin"], event["end"], at_begin, at_end))
                rank.moved.sort()
        for rank in self.ranks:
            for moment, step, count, duration in getattr(rank, "mallocs", []):
                for i in range(count):
                    rank.new.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "pid": step["pid"],
                                     "tid": step["tid"], "begin": moment + rank.shift(moment) + i * duration,
                                     "duration": duration, "args": {}})
            rank.write(folder)
        return folder
