#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record a real distributed training job as Kineto-shaped traces.

Starts a DistributedDataParallel job of a few processes on this machine (gloo
over the loopback interface, CPU only, one thread per rank), profiles some
steps and writes one `rank-N.json.gz` per rank.  One rank can be slowed by a
known amount, so the recording carries its own right answer.

Needs Debian 12's own PyTorch with OpenBLAS behind it:

    apt-get install python3-torch libopenblas0-pthread
    /usr/bin/python3 record_job.py --out DIR --ranks 4 --slow-rank 2 --slow-ms 25

(The reference BLAS is over ten times slower on a matrix product; a trace
recorded with it would mislead, so the script refuses to run with it.)

What is in a trace
------------------
Debian's PyTorch is built without Kineto, and its own Chrome export has neither
shapes nor sequence numbers.  The profiler's event objects are therefore written
by data/record/paceline_kineto.py, in the layout that Kineto uses:

  schemaVersion         1
  distributedInfo       backend, rank, world_size
  baseTimeNanoseconds   the same for all ranks; the absolute time of an event in
                        ns since the Unix epoch is this + 1000 * ts
  traceEvents           "X" events, cat cpu_op or user_annotation, ts and dur in
                        us with three decimals; "M" events name the processes
                        and threads
  recorder              not part of Kineto: the configuration, the machine's
                        load, step times without the profiler, the buckets that
                        DDP really used, and the known truth

Event arguments: "External id", "Sequence number" (the same on a backward op and
its forward op), "Fwd thread id", "Input Dims", "Input type"; collectives carry
"is_async" and "end_tid" too.  `tid` is the profiler's thread number: 1 is the
main thread (a CPU backward pass runs on it as well), the others belong to gloo.

Spans of a step:

  ProfilerStep#N
    load_batch      once per micro-batch; on the slow rank the first one of the
                    step sleeps --slow-ms
    forward         once per micro-batch
    backward        once per micro-batch; the last one starts the all-reduces
    optimizer       gradient step and clearing of the gradients
    collectives     only with --collectives

Collectives are `gloo:*` events.  Sorted by start time within each rank, the
k-th one of one rank is the same collective as the k-th one of any other rank.
gloo runs at most two at once per rank.

Things to know
--------------
* Weights and data come from --seed alone: two runs that differ in one option do
  the same arithmetic otherwise.  Times are still those of a real machine: use
  --pin and an idle machine where they matter, and look at recorder.load_average.
* DDP closes its first bucket at --first-bucket-mb whatever --bucket-mb says,
  and regroups its buckets after the first step; recorder.bucket_bytes holds the
  sizes in the end, in bytes, in the order DDP reports them.
* All ranks read one hardware clock, but each calibrates the profiler's counter
  against it separately: a few us of apparent skew between ranks are normal.
  recorder.step_marks has the same steps by the system clocks.
"""

import argparse
import os
import sys
import tempfile
import time

# One thread per rank, and gloo bound to the loopback interface.  Both are read
# when the libraries load, so they are set before torch is imported; the spawned
# ranks inherit them.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

# What writes the traces is shared with `paceline record`.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "record"))
import paceline_kineto  # noqa: E402

MODEL_DEFAULTS = {
    # width, layers, batch
    "mlp": (384, 8, 128),
    "transformer": (128, 2, 8),
}
CLASSES = 10  # mlp
SEQUENCE = 32  # transformer
VOCABULARY = 512  # transformer
DATASET = 512  # samples held by each rank


def refuse(message):
    """One line on stderr, exit status 2."""
    print(f"record_job: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile, record_function
except ImportError as error:
    refuse(f"no PyTorch in {sys.executable} ({error}); apt-get install python3-torch "
           "libopenblas0-pthread and use /usr/bin/python3")


# ---------------------------------------------------------------- options


def rank_or_none(text):
    if text == "none":
        return None
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is neither a rank nor none")
    return int(text)


def parse_options():
    parser = argparse.ArgumentParser(
        description="Record a gloo data-parallel training job on this machine as one "
                    "Kineto-shaped trace per rank.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--out", required=True, metavar="DIR", help="folder for rank-N.json.gz; made if missing")
    add("--ranks", type=int, default=4, help="processes of the job")
    add("--steps", type=int, default=6, help="profiled steps")
    add("--model", choices=sorted(MODEL_DEFAULTS), default="mlp", help="what is trained")
    add("--width", type=int, help="hidden width (mlp 384, transformer 128)")
    add("--layers", type=int, help="hidden layers or blocks (mlp 8, transformer 2)")
    add("--batch", type=int, help="samples of a micro-batch (mlp 128, transformer 8)")
    add("--bucket-mb", type=float, default=25.0, help="DDP's gradient bucket size in MiB")
    add("--first-bucket-mb", type=float, default=1.0, help="size of DDP's first bucket in MiB")
    add("--accumulation", type=int, default=1, help="micro-batches of a step")
    add("--slow-rank", type=rank_or_none, default="none", metavar="R",
        help="rank that loads its batch late in every step, or none")
    add("--slow-ms", type=float, default=25.0, metavar="M", help="by how many milliseconds")
    add("--collectives", action="store_true",
        help="end each step with one collective of each kind")
    add("--collective-kb", type=int, default=256, help="size of those, in KiB")
    add("--pin", action="store_true", help="pin rank i to the (i mod cores)-th core")
    add("--warmup", type=int, default=6, help="steps before anything is timed")
    add("--timed-steps", type=int, default=10,
        help="steps timed without the profiler: once from a common start, once back to back")
    add("--seed", type=int, default=1, help="seed of weights and data")
    options = parser.parse_args()

    for name in ("ranks", "steps", "accumulation", "collective_kb"):
        if getattr(options, name) < 1:
            refuse(f"--{name.replace('_', '-')} must be at least 1")
    # DDP regroups its buckets when the second step begins; never time that.
    if options.warmup < 3:
        refuse("--warmup must be at least 3")
    if options.timed_steps < 0 or options.slow_ms < 0:
        refuse("--timed-steps and --slow-ms must not be negative")
    if options.bucket_mb <= 0 or options.first_bucket_mb <= 0:
        refuse("bucket sizes must be above 0")
    if options.slow_rank is not None and not 0 <= options.slow_rank < options.ranks:
        refuse(f"--slow-rank must be none or 0 to {options.ranks - 1}")
    for name, default in zip(("width", "layers", "batch"), MODEL_DEFAULTS[options.model]):
        if getattr(options, name) is None:
            setattr(options, name, default)
        if getattr(options, name) < 1:
            refuse(f"--{name} must be at least 1")
    if options.model == "transformer" and options.width % 32:
        refuse("--width of a transformer must be a multiple of 32")
    if options.batch > DATASET:
        refuse(f"--batch must be at most {DATASET}")
    return options


def require_openblas():
    """Refuse unless the BLAS mapped into this process is OpenBLAS; return its file name.

    The file behind libblas.so.3 is chosen by the system (update-alternatives) or
    by LD_LIBRARY_PATH, so the memory map is the only proof.
    """
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if "blas" in line}
    engine = sorted(p for p in paths if "libopenblas" in os.path.basename(p))
    other = sorted(p for p in paths
                   if os.path.basename(p).startswith("libblas") and "openblas" not in p)
    if other or not engine:
        found = other[0] if other else "none"
        refuse(f"the active BLAS is not OpenBLAS (found: {found}); "
               "apt-get install libopenblas0-pthread")
    return os.path.basename(engine[0])


# ----------------------------------------------------------------- models


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width):
        super().__init__()
        self.heads = width // 32
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        score = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5 + mask
        mixed = (score.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(mixed)
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Transformer(nn.Module):
    """A small next-token model."""

    def __init__(self, width, layers):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.randn(SEQUENCE, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", torch.full((SEQUENCE, SEQUENCE), float("-inf")).triu(1))

    def forward(self, tokens):
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def make_mlp(width, layers):
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, CLASSES))


def make_dataset(options, generator):
    """All samples and targets of a rank."""
    if options.model == "mlp":
        return (torch.randn(DATASET, options.width, generator=generator),
                torch.randint(CLASSES, (DATASET,), generator=generator))
    tokens = torch.randint(VOCABULARY, (DATASET, SEQUENCE + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


# ---------------------------------------------------------------- the job


class Job:
    """One rank of the training job."""

    def __init__(self, options, rank):
        self.options = options
        self.delay = options.slow_ms / 1000 if rank == options.slow_rank else 0.0
        torch.manual_seed(options.seed)  # the same weights on every rank
        if options.model == "mlp":
            model = make_mlp(options.width, options.layers)
        else:
            model = Transformer(options.width, options.layers)
        dist._DEFAULT_FIRST_BUCKET_BYTES = int(options.first_bucket_mb * 2**20)
        self.model = DistributedDataParallel(
            model, bucket_cap_mb=options.bucket_mb, broadcast_buffers=False)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.generator = torch.Generator().manual_seed(options.seed * 1000 + rank)
        self.samples, self.targets = make_dataset(options, self.generator)
        self.message = torch.ones(options.collective_kb * 256 // options.ranks * options.ranks)

    def load_batch(self, first):
        with record_function("load_batch"):
            if first and self.delay:
                time.sleep(self.delay)
            pick = torch.randint(DATASET, (self.options.batch,), generator=self.generator)
            return self.samples[pick], self.targets[pick]

    def micro_batch(self, first):
        samples, targets = self.load_batch(first)
        with record_function("forward"):
            output = self.model(samples)
            loss = F.cross_entropy(output.flatten(0, -2), targets.flatten())
        with record_function("backward"):
            (loss / self.options.accumulation).backward()

    def step(self):
        last = self.options.accumulation - 1
        for index in range(last):
            with self.model.no_sync():
                self.micro_batch(index == 0)
        self.micro_batch(last == 0)
        with record_function("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        if self.options.collectives:
            with record_function("collectives"):
                self.run_collectives()

    def run_collectives(self):
        message, ranks = self.message, self.options.ranks
        dist.all_reduce(message)
        parts = [torch.empty(message.numel() // ranks) for _ in range(ranks)]
        dist.all_gather(parts, message[:message.numel() // ranks].clone())
        dist.broadcast(message, src=0)
        dist.all_to_all_single(torch.empty_like(message), message)
        dist.reduce(message, dst=0)
        dist.barrier()
        message.fill_(1.0)


def time_steps(job, count, meet=None):
    """Durations of `count` steps in seconds; `meet` lines the ranks up before each."""
    times = []
    for _ in range(count):
        if meet:
            meet()
        begin = time.monotonic_ns()
        job.step()
        times.append((time.monotonic_ns() - begin) / 1e9)
    return times


def profile_steps(job, count, meet):
    """Profile `count` steps; return the profiler's result and the marks of each step."""
    marks = []
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        meet()
        for number in range(count):
            real, begin = time.time_ns(), time.monotonic_ns()
            with record_function(f"ProfilerStep#{number}"):
                job.step()
            marks.append([begin, time.monotonic_ns(), real])
        # gloo's threads close the record of a collective just after the waiting
        # thread has gone on: leave them the time to.
        time.sleep(0.05)
    return profiler.profiler.kineto_results, marks


def run_rank(rank, options, rendezvous, barrier, shared):
    """The whole life of one rank."""
    if options.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                            world_size=options.ranks)
    job = Job(options, rank)
    # A barrier outside torch.distributed, so that no trace shows it.
    meet = barrier.wait
    time_steps(job, options.warmup)
    common = time_steps(job, options.timed_steps, meet)
    meet()
    back_to_back = time_steps(job, options.timed_steps)
    profile_steps(job, 2, meet)  # the profiler's own warm-up, thrown away
    result, marks = profile_steps(job, options.steps, meet)
    recorder = dict(shared)
    recorder.update({
        "bucket_bytes": bucket_bytes(job.model),
        "unprofiled_step_s_common_start": common,
        "unprofiled_step_s_back_to_back": back_to_back,
        "profiled_step_s": [(end - begin) / 1e9 for begin, end, _ in marks],
        "step_marks": {"columns": ["monotonic_begin_ns", "monotonic_end_ns",
                                   "realtime_begin_ns"], "rows": marks},
        "pinned_to": sorted(os.sched_getaffinity(0)) if options.pin else None,
    })
    meet()
    paceline_kineto.write_trace(os.path.join(options.out, f"rank-{rank}.json.gz"), rank,
                             options.ranks, result, recorder, recorder.pop("base_ns"))
    meet()
    dist.destroy_process_group()


def bucket_bytes(model):
    """Sizes of DDP's buckets as regrouped after the first step."""
    data = model._get_ddp_logging_data()
    text = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    return [int(size) for size in text.split(",") if size.strip()]


# ----------------------------------------------------------------- launch


def main():
    options = parse_options()
    blas = require_openblas()
    os.makedirs(options.out, exist_ok=True)
    config = {name: value for name, value in vars(options).items() if name != "out"}
    slow = options.slow_rank is not None and options.slow_ms > 0
    shared = {
        "recorded_with": f"PyTorch {torch.__version__}, gloo on loopback, CPU, {blas}, "
                         "1 thread per rank",
        "cores": len(os.sched_getaffinity(0)),
        "config": config,
        "truth": {"slow_rank": options.slow_rank if slow else None,
                  "slow_ms": options.slow_ms if slow else 0.0},
        "load_average": list(os.getloadavg()),
        "base_ns": time.time_ns() // 10**9 * 10**9,
    }
    with tempfile.TemporaryDirectory() as folder:
        barrier = mp.get_context("spawn").Barrier(options.ranks)
        mp.spawn(run_rank, nprocs=options.ranks,
                 args=(options, os.path.join(folder, "rendezvous"), barrier, shared))
    for rank in range(options.ranks):
        path = os.path.join(options.out, f"rank-{rank}.json.gz")
        print(f"{path}  {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
