"""A diagnosis of a job that never ran, for looking at the page at any size:

    tests/page/synthetic.py --ranks 1000 --collectives 300 PAGE > OUT     PAGE: any page that paceline wrote
"""
import argparse
import pathlib
import random
import re

import json

PARTS = ("compute", "exposed_wait", "exposed_transfer", "exposed_copies", "idle_host", "idle_gap", "idle_other", "lead",
         "tail")
DATA = {name: re.compile(f'(<script type="application/json" id="{name}">)(.*?)(</script>)', re.DOTALL)
        for name in ("result", "timeline-data")}


def with_result(page, result):
    """The page with another result in it, put there as the report room does, and no timeline."""
    for name, value in (("result", result), ("timeline-data", None)):
        text = json.dumps(value).replace("<", "\\u003c")
        page = DATA[name].sub(lambda found, text=text: found[1] + text + found[3], page, count=1)
    return page


def data_of(page, name="result"):
    return json.loads(DATA[name].search(page)[2])


def diagnosis(ranks, collectives, late, seed=1):
    """Tensor-parallel groups of 8 beside collectives of all ranks; `late` comes late to the latter."""
    random.seed(seed)
    waits_of, rows = [0] * ranks, []
    for index in range(collectives):
        small = index % 4 == 3
        first = random.randrange(ranks // 8) * 8 if small and ranks >= 8 else 0
        members = list(range(first, first + 8)) if small and ranks >= 8 else list(range(ranks))
        lateness = 0 if small else int(random.gauss(9e6, 2e6) * (2.5 if index == collectives // 2 else 1))
        arrival = {rank: int(random.gammavariate(2, 4e5)) + (2500000 if rank // 8 == 5 else 0) for rank in members}
        if not small:
            arrival[late] = max(arrival.values()) + max(0, lateness)
        last = max(arrival, key=lambda rank: (arrival[rank], rank))
        waits = [arrival[last] - arrival[rank] for rank in members]
        for rank, wait in zip(members, waits):
            waits_of[rank] += wait
        middle = sorted(arrival[rank] for rank in members if rank != last)
        rows.append({"name": "all_reduce" if small else ("reduce_scatter", "all_gather", "all_reduce")[index % 3],
                     "group": f"tp {first // 8}" if small else "all ranks", "elements": 1 << (18 + index % 8),
                     "ranks": len(members), "last_rank": last, "transfer_ns": random.randrange(200000, 4000000),
                     "start_spread_ns": max(waits), "end_spread_ns": random.randrange(7000),
                     "behind_ns": arrival[last] - middle[len(middle) // 2], "members": members, "waits_ns": waits})
    names = ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "void at::native::vectorized_elementwise"
             "_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::"
             "CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)", "Memcpy HtoD (Pinned -> Device)")
    result = {
        "schema": "paceline/diagnosis/1", "world_size": ranks, "has_device": True, "marks_steps": True, "steps": 5,
        "median_step_ns": 0, "late_rank": late, "causes": [], "mismatches": [], "causality_violations": 0,
        "warnings": ["rank 3: the name of the file says rank 4, its distributedInfo says 3; taken as 3"],
        "findings": [{"id": "F1", "kind": "late_rank", "cost_per_step_ns": 9000000, "basis": "inferred", "rank": late,
                      "title": f"rank {late} arrives last and holds the others up for 9.00 ms per step",
                      "evidence": ["made for looking at the page"], "remedy": "nothing: this job never ran"}],
        "ranks": [], "collectives": rows,
        "kernels": [{"name": f"{names[i % 3]} #{i}", "kind": ("compute", "compute", "copy")[i % 3], "count": 5000 - i,
                     "total_ns": 9 * 10**9 // (i + 1), "min_ns": 900 + i, "max_ns": 3000000 // (i + 1) + 1000}
                    for i in range(200)],
        "operators": [{"name": f"aten::op_{i}", "count": 1000 + i, "self_ns": 10**8 // (i + 1),
                       "total_ns": 3 * 10**8 // (i + 1)} for i in range(300)]}
    for rank in range(ranks):
        parts = dict.fromkeys(PARTS, 0)
        parts.update(compute=int(random.gauss(61e6, 1e6)), exposed_wait=waits_of[rank] // 300,
                     exposed_transfer=int(random.gauss(14e6, 3e5)), exposed_copies=random.randrange(800000),
                     idle_host=9000000 if rank == late else random.randrange(2000000),
                     idle_gap=random.randrange(900000), idle_other=random.randrange(1500000),
                     lead=random.randrange(90000), tail=random.randrange(300000))
        step = {f"{part}_ns": time for part, time in parts.items()}
        step.update(number=-1, begin_ns=0, duration_ns=sum(parts.values()), communication_ns=40000000,
                    overlap_ns=random.randrange(10000000, 21000000), copies_ns=900000)
        result["ranks"].append({
            "rank": rank, "source": f"traces/node{rank // 8:03}/rank{rank}.json.gz", "host": f"node{rank // 8:03}",
            "events": {"total": random.randrange(90000, 120000)}, "collectives": collectives,
            "times_last": sum(row["last_rank"] == rank for row in rows), "mean_step": step, "steps": [step],
            "clock": {"offset_ns": random.randrange(-900000, 900000), "residual_ns": random.randrange(6000)},
            "repairs": [{"repair": "unmatched_flow", "count": 7, "loses_data": False, "first_place": "byte 81,222",
                         "first_detail": "id 17"}] if rank % 50 == 0 else []})
    result["median_step_ns"] = sorted(rank["mean_step"]["duration_ns"] for rank in result["ranks"])[ranks // 2]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--collectives", type=int, default=300)
    parser.add_argument("--late", type=int)
    arguments = parser.parse_args()
    late = arguments.ranks * 2 // 3 if arguments.late is None else arguments.late
    print(with_result(arguments.page.read_text(encoding="utf-8"),
                      diagnosis(arguments.ranks, arguments.collectives, late)))


if __name__ == "__main__":
    main()
