"""An ordinary DDP training script, which knows nothing of being recorded.

    train.py spawn [--ranks N] ...     starts its ranks itself with mp.spawn
    train.py                           is one rank, as told by RANK and WORLD_SIZE (torchrun)
"""
import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("launch", nargs="?", choices=["spawn", "env", "alone"], default="env")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sleep-rank", type=int, default=-1)
    parser.add_argument("--sleep-ms", type=float, default=30)
    parser.add_argument("--pin", action="store_true", help="each rank on a core of its own")
    parser.add_argument("--crash-rank", type=int, default=-1)
    parser.add_argument("--crash-step", type=int, default=3)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--two-optimizers", action="store_true")
    parser.add_argument("--own-profiler", type=int, default=-1, metavar="STEP")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--touch-step", type=int, default=-1)
    parser.add_argument("--touch")
    return parser.parse_args()


def batches(options):
    data = torch.utils.data.TensorDataset(torch.randn(options.steps * 16, options.width))
    loader = torch.utils.data.DataLoader(data, batch_size=16, num_workers=options.workers)
    return (batch for batch, in loader)


def train(rank, ranks, options):
    torch.manual_seed(0)
    if options.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    width = options.width
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(4)])
    if ranks:
        model = DistributedDataParallel(model)
    parameters = list(model.parameters())
    if options.two_optimizers:
        optimizers = [torch.optim.SGD(parameters[:4], lr=0.01), torch.optim.Adam(parameters[4:], lr=0.01)]
    else:
        optimizers = [torch.optim.SGD(parameters, lr=0.01)]
    profiler = None
    for step, batch in enumerate(batches(options)):
        if step == options.touch_step and rank == 0:
            with open(options.touch, "w"):
                pass
        if rank == options.sleep_rank:
            time.sleep(options.sleep_ms / 1000)
        if rank == options.crash_rank and step == options.crash_step:
            raise RuntimeError("on purpose")
        if step == options.own_profiler:
            profiler = torch.profiler.profile()
            profiler.start()
        loss = model(batch).square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if rank == 0:
            print(f"step {step}: {loss.item():.6f}", flush=True)
    if profiler:
        profiler.stop()
        print("own profiler:", len(profiler.events()) > 0, flush=True)


def spawned(rank, options, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks)
    train(rank, options.ranks, options)
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    options = parse()
    if options.launch == "spawn":
        mp.spawn(spawned, nprocs=options.ranks, args=(options, free_port()))
    elif options.launch == "alone":
        train(0, 0, options)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        train(dist.get_rank(), dist.get_world_size(), options)
        dist.destroy_process_group()
    sys.exit(options.exit)


if __name__ == "__main__":
    main()
