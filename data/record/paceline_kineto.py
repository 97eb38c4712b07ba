# SPDX-License-Identifier: Apache-2.0
"""Kineto-shaped traces from a PyTorch that was built without Kineto (Debian's).

Such a PyTorch profiles too, but its own Chrome export has neither shapes nor sequence numbers. This file writes the
profiler's event objects in the layout that Kineto uses; examples/record_job.py describes that layout.
Used by the hook of `paceline record` and by examples/record_job.py; standard library only.
"""
import gzip
import json
import os

USER_SCOPE = 7  # RecordScope::USER_SCOPE of the profiler


def _nanosecond_times(result):
    """(start, duration) in ns by event id: the flat event list has whole us only."""
    times = {}
    waiting = list(result.experimental_event_tree())
    while waiting:
        node = waiting.pop()
        if node.correlation_id in times:
            raise RuntimeError(f"event id {node.correlation_id} occurs twice")
        times[node.correlation_id] = (node.start_time_ns, node.duration_time_ns)
        waiting.extend(node.children)
    return times


def trace_events(result, rank, base_ns):
    """The traceEvents list of one rank, and how many unfinished events were left out."""
    pid = os.getpid()
    times = _nanosecond_times(result)
    events, unfinished, threads = [], 0, {1: "main"}
    for event in result.events():
        start, duration = times[event.correlation_id()]
        if duration < 0 or start < base_ns:
            unfinished += 1
            continue
        name, tid = event.name(), event.start_thread_id()
        args = {"External id": event.correlation_id()}
        if event.sequence_nr() >= 0:
            args["Sequence number"] = event.sequence_nr()
            args["Fwd thread id"] = event.fwd_thread_id()
        if event.shapes():
            args["Input Dims"] = event.shapes()
            args["Input type"] = event.dtypes()
        if event.is_async() or event.end_thread_id() != tid:
            args["is_async"] = int(event.is_async())
            args["end_tid"] = event.end_thread_id()
        if name.startswith("gloo:"):
            threads[tid] = "gloo worker"
        threads.setdefault(tid, "thread")
        events.append({
            "ph": "X", "cat": "user_annotation" if event.scope() == USER_SCOPE else "cpu_op",
            "name": name, "pid": pid, "tid": tid,
            # Below an hour, so three decimals of a us are exact in a double.
            "ts": round((start - base_ns) / 1000, 3), "dur": round(duration / 1000, 3),
            "args": args})
    names = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0,
              "args": {"name": f"rank {rank}"}},
             {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "ts": 0,
              "args": {"sort_index": rank}}]
    for tid, label in sorted(threads.items()):
        names.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "ts": 0,
                      "args": {"name": label if tid == 1 else f"{label} {tid}"}})
    return names + events, unfinished


def write_trace(path, rank, ranks, result, recorder, base_ns, backend="gloo", compresslevel=9):
    """Writes the trace of one rank as .json.gz; `recorder` is what the recording tells about itself."""
    events, unfinished = trace_events(result, rank, base_ns)
    recorder["unfinished_events_left_out"] = unfinished
    head = {
        "schemaVersion": 1,
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base_ns,
        "distributedInfo": {"backend": backend, "rank": rank, "world_size": ranks},
        "recorder": recorder,
        "traceName": f"rank-{rank}.json.gz",
    }
    compact = (",", ":")
    # One event a line.  No file name and no time in the gzip header.
    text = (json.dumps(head, separators=compact)[:-1] + ',"traceEvents":[\n'
            + ",\n".join(json.dumps(event, separators=compact) for event in events) + "\n]}\n")
    with open(path, "wb") as raw, \
            gzip.GzipFile(filename="", mode="wb", compresslevel=compresslevel, fileobj=raw, mtime=0) as out:
        out.write(text.encode())
