"""Databases as nsys and rocprofv3 document them, with as many rows as a test needs."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
NSYS = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT,
    nameEnum INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
    nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
    rangeId INTEGER, category INTEGER, text TEXT, globalTid INTEGER, textId INTEGER,
    domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, nameId INTEGER NOT NULL);
CREATE TABLE MPI_RANKS (globalTid INTEGER, rank INTEGER);
"""
ROCPD = """
CREATE TABLE rocpd_string_1 (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_info_node_1 (id INTEGER PRIMARY KEY, hostname TEXT);
CREATE TABLE rocpd_info_process_1 (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, command TEXT,
    environment JSONB DEFAULT '{}');
CREATE TABLE rocpd_info_thread_1 (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, name TEXT);
CREATE TABLE rocpd_info_kernel_symbol_1 (id INTEGER PRIMARY KEY, kernel_name TEXT,
    display_name TEXT);
CREATE TABLE rocpd_event_1 (id INTEGER PRIMARY KEY, category_id INTEGER);
CREATE TABLE rocpd_region_1 (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start BIGINT,
    end BIGINT, name_id INTEGER, event_id INTEGER);
CREATE TABLE rocpd_kernel_dispatch_1 (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER,
    agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, stream_id INTEGER, start BIGINT,
    end BIGINT);
CREATE TABLE rocpd_memory_copy_1 (id INTEGER PRIMARY KEY, pid INTEGER, start BIGINT, end BIGINT,
    name_id INTEGER, dst_agent_id INTEGER, size INTEGER, stream_id INTEGER);
CREATE TABLE rocpd_memory_allocate_1 (id INTEGER PRIMARY KEY, start BIGINT, end BIGINT);
CREATE VIEW kernels AS SELECT * FROM rocpd_kernel_dispatch_1;
"""


def of_process(pid: int) -> int:
    """The global number of a process of nsys's."""
    return 1 << 56 | pid << 24


def filled(path: Path, schema: str, tables: dict[str, Iterable[tuple[Any, ...]]]) -> Path:
    """A database with these rows, whose columns are the table's first ones."""
    connection = sqlite3.connect(path)
    connection.executescript(schema)
    for table, rows in tables.items():
        for row in rows:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)
    connection.commit()
    connection.close()
    return path


def nsys(
    path: Path, pids: dict[int, int], late_us: int = 0, late_pid: int = 0, **more: Any
) -> Path:
    """An export with ten steps of each process; one process computes for longer than the others.

    A step has two kernels, an allreduce on another stream, a copy, and a call of CUDA's.

    Args:
        pids: the device of each process.
        late_us: by how much longer it computes, for which the others wait.
        more: further rows of tables.
    """
    names = ["gemm", NCCL, "cudaLaunchKernel_v7000", "train_step 1", "pt_main_thread", "NCCL"]
    tables: dict[str, list[tuple[Any, ...]]] = {
        "StringIds": list(enumerate(names)),
        "TARGET_INFO_SESSION_START_TIME": [(10**18, "", "")],
        "TARGET_INFO_SYSTEM_ENV": [(0, "", "Hostname", 0, "node7")],
        "PROCESSES": [(of_process(pid), pid, "/usr/bin/python3") for pid in pids],
        "ThreadNames": [(4, 0, of_process(pid) | pid) for pid in pids],
    }
    for name in ("KERNEL", "MEMCPY", "RUNTIME"):
        tables[f"CUPTI_ACTIVITY_KIND_{name}"] = []
    tables["NVTX_EVENTS"] = [(0, None, 75, None, None, None, of_process(1), 5, 3)]
    for pid, device in pids.items():
        of, late = of_process(pid), late_us * 1000 if pid == late_pid else 0
        for step in range(10):
            at = step * 1_000_000
            call = step * 10
            tables["NVTX_EVENTS"].append(
                (at, at + 1_000_000, 59, None, None, f"train_step {step}", of | pid, None, 0)
            )
            tables["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
                (at + 90_000, at + 95_000, 0, of | pid, call, 2, 0)
            )
            tables["CUPTI_ACTIVITY_KIND_KERNEL"] += [
                (at + 100_000, at + 300_000 + late, device, 1, 7, call, of, 0, 0),
                (at + 320_000 + late, at + 700_000 + late_us * 1000, device, 1, 20, call + 1, of,
                 1, 1),
            ]  # fmt: skip
            tables["CUPTI_ACTIVITY_KIND_MEMCPY"].append(
                (at + 10_000, at + 20_000, device, 1, 7, call + 2, of, 4096, 1)
            )
    for table, rows in more.items():
        tables[table] = [*tables.get(table, []), *rows]
    return filled(path, NSYS, tables)


def rocpd(path: Path, rank: int | None = None) -> Path:
    """A database of one process, with a kernel, one of RCCL's, a copy, a call and a mark."""
    variables = "{}" if rank is None else f'{{"RANK":"{rank}"}}'
    names = ["HIP_RUNTIME_API_EXT", "MARKER_CORE_API", "hipLaunchKernel", "step 3", "COPY_H2D"]
    return filled(
        path,
        ROCPD,
        {
            "rocpd_string_1": [(number, "", name) for number, name in enumerate(names, 1)],
            "rocpd_info_node_1": [(1, "node7")],
            "rocpd_info_process_1": [(1, 1, 4711, "python3 train.py", variables)],
            "rocpd_info_thread_1": [(1, 1, 4712, "main")],
            "rocpd_info_kernel_symbol_1": [(1, "gemm.kd", "gemm"), (2, "x", NCCL)],
            "rocpd_event_1": [(1, 1), (2, 2)],
            "rocpd_region_1": [(1, 1, 1, 10, 20, 3, 1), (2, 1, 1, 0, 1000, 4, 2)],
            "rocpd_kernel_dispatch_1": [
                (1, 1, 1, 2, 1, 1, 0, 30, 130),
                (2, 1, 1, 2, 2, 2, 1, 100, 400),
            ],
            "rocpd_memory_copy_1": [(1, 1, 500, 600, 5, 2, 8192, 0)],
            "rocpd_memory_allocate_1": [(1, 1, 2)],
        },
    )
