"""Nsight Systems' exports, as NVIDIA documents their tables ("nsys export --type sqlite")."""

import re
from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.reading.json.damage import DamageReport
from hvdtune.timeline.reading.json.rows import NO_TIME, SliceRows
from hvdtune.timeline.reading.sqlite.database import NumberedTexts, ProfileDatabase, not_shown
from hvdtune.timeline.reading.sqlite.ranks import ranks_by_device
from hvdtune.timeline.reading.sqlite.tracks import name_tracks, stream_of

KEY = "nsys"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_RANGES = "NVTX_EVENTS"
_READ: Final = {_KERNELS, _COPIES, _SETS, _CALLS, _RANGES}
# CUpti_ActivityMemcpyKind.
_COPY_KINDS: Final = dict(
    enumerate(("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), 1)
)
_MARK, _PUSH_POP, _START_END, _DOMAIN = 34, 59, 60, 75  # types of NVTX events
_RANK = re.compile(r"(?<![a-z0-9])rank[ _=:#-]{0,2}([0-9]{1,7})(?![0-9])", re.IGNORECASE)
_VERSION = re.compile(r"_v[0-9]+$")


def recognizes(database: ProfileDatabase) -> bool:
    """Whether it is such an export."""
    return bool({_KERNELS, _CALLS, _RANGES} & {*database.columns}) and (
        "StringIds" in database.columns
    )


class NsysReader:
    """Reads one export."""

    def __init__(self, database: ProfileDatabase, report: DamageReport, rows: SliceRows) -> None:
        self._database = database
        self._report = report
        self._rows = rows
        self._strings = NumberedTexts(database, "StringIds", "id", "value")
        self._devices: dict[str, set[int]] = {}  # that each process uses
        self._ranks: dict[str, Counter[int]] = {}  # that ranges of each process name

    def read(self) -> dict[str, Any]:
        """Give all rows on; what is known beside them."""
        self._read_kernels()
        self._read_copies()
        self._read_calls()
        self._read_ranges()
        self._rows.finish()
        self._name_threads()
        for table, columns in sorted(self._database.columns.items()):
            if "start" in columns and table not in _READ:
                count = self._database.count(table)
                self._report.left_out("X", not_shown(table), count)
        said: dict[str, Any] = {"ranks": self._ranks_of_processes()}
        host = self._said("TARGET_INFO_SYSTEM_ENV", "Hostname")
        version = self._said("META_DATA_CAPTURE", "PRODUCT_VERSION") or self._said(
            "EXPORT_META_DATA", "EXPORT_PRODUCT_VERSION"
        )
        said |= {"host": host} if host else {}
        said |= {"version": version} if version else {}
        table = "TARGET_INFO_SESSION_START_TIME"
        if table in self._database.columns:
            column = self._database.integer(table, "utcEpochNs")
            for (origin,) in self._database.rows(table, [column]):
                said["origin_unix_ns"] = origin
        return said

    def _columns(self, table: str, *columns: str) -> Any:
        """Batches of a table as whole numbers: begin, end, and the columns."""
        integer = self._database.integer
        if table not in self._database.columns:
            return
        times = [integer(table, name, default=NO_TIME) for name in ("start", "end")]
        expressions = [*times, *(integer(table, *name.split("|")) for name in columns)]
        for rows in self._database.batches(table, expressions):
            yield np.array(rows, np.int64).T

    def _read_kernels(self) -> None:
        columns = ("globalPid", "deviceId", "streamId", "correlationId", "demangledName|shortName")
        for begin, end, process, device, stream, call, name in self._columns(_KERNELS, *columns):
            self._rows.add(
                self._on_devices(process, device, stream),
                self._rows.codes(name, self._strings.of),
                "kernel",
                (begin, end),
                _calls(call),
            )

    def _read_copies(self) -> None:
        for table, category in ((_COPIES, "gpu_memcpy"), (_SETS, "gpu_memset")):
            columns = ("globalPid", "deviceId", "streamId", "correlationId", "bytes", "copyKind")
            for values in self._columns(table, *columns):
                begin, end, process, device, stream, call, size, kind = values
                self._rows.add(
                    self._on_devices(process, device, stream),
                    self._rows.codes(kind, _copy_name if table == _COPIES else _memset),
                    category,
                    (begin, end),
                    [
                        f'{{"bytes":{moved},"correlation":{number}}}'
                        for moved, number in zip(size.tolist(), call.tolist(), strict=True)
                    ],
                    size=size,
                )

    def _read_calls(self) -> None:
        columns = ("globalTid", "correlationId", "nameId")
        for begin, end, thread, call, name in self._columns(_CALLS, *columns):
            self._rows.add(
                self._rows.threads([thread], _host_thread),
                self._rows.codes(name, lambda number: _VERSION.sub("", self._strings.of(number))),
                "cuda_runtime",
                (begin, end),
                _calls(call),
            )

    def _read_ranges(self) -> None:
        if _RANGES not in self._database.columns:
            return
        integer = self._database.integer
        times = [integer(_RANGES, name, default=NO_TIME) for name in ("start", "end")]
        numbers = [integer(_RANGES, "globalTid"), integer(_RANGES, "textId")]
        kind = integer(_RANGES, "eventType", default=_PUSH_POP)
        expressions = [*times, kind, *numbers, self._database.text(_RANGES, "text")]
        for batch in self._database.batches(_RANGES, expressions):
            for wanted, phase in (((_PUSH_POP, _START_END), "X"), ((_MARK,), "i")):
                rows = [row for row in batch if row[2] in wanted]
                if rows:
                    self._add_ranges(rows, phase)
            kinds = Counter(row[2] for row in batch)
            others = sum(kinds.values()) - kinds[_PUSH_POP] - kinds[_START_END] - kinds[_MARK]
            # Names of domains and categories, and the like.
            self._report.shown["M"] += others

    def _add_ranges(self, rows: list[tuple[Any, ...]], phase: str) -> None:
        begin, end, _, thread, text_id = np.array([row[:5] for row in rows], np.int64).T
        texts = [
            row[5] or (self._strings.of(number) if number >= 0 else "")
            for row, number in zip(rows, text_id.tolist(), strict=True)
        ]
        for text, number in zip(texts, thread.tolist(), strict=True):
            if match := _RANK.search(text):
                pid = _process(number)
                self._ranks.setdefault(pid, Counter())[int(match[1])] += 1
        if phase == "i":
            end = begin
        self._rows.add(
            self._rows.threads([thread], _host_thread),
            np.array([self._rows.code(text) for text in texts], np.int32),
            "nvtx",
            (begin, end),
            [""] * len(rows),
            phase,
        )

    def _on_devices(
        self, process: NDArray[Any], device: NDArray[Any], stream: NDArray[Any]
    ) -> NDArray[np.int32]:
        def place(process: int, device: int, stream: int) -> tuple[str, str]:
            pid = _process(process)
            self._devices.setdefault(pid, set()).add(device)
            return stream_of(pid, device, stream)

        return self._rows.threads([process, device, stream], place)

    def _name_threads(self) -> None:
        database, tracks = self._database, self._rows.tracks
        names: dict[str, str] = {}
        if {"globalPid", "name"} <= {*database.columns.get("PROCESSES", [])}:
            columns = [
                database.integer("PROCESSES", "globalPid"),
                database.text("PROCESSES", "name"),
            ]
            names = {_process(pid): name for pid, name in database.rows("PROCESSES", columns)}
        name_tracks(tracks, names, "GPU")
        if {"globalTid", "nameId"} <= {*database.columns.get("ThreadNames", [])}:
            columns = [database.integer("ThreadNames", name) for name in ("globalTid", "nameId")]
            for thread, number in database.rows("ThreadNames", columns):
                pid, tid = _host_thread(thread)
                if pid in tracks.processes:
                    tracks.threads.setdefault(pid, {})[tid] = self._strings.of(number)

    def _ranks_of_processes(self) -> dict[str, int]:
        """Ranks by pid: as MPI says, as ranges say, or by the devices where there are several."""
        database = self._database
        if {"globalTid", "rank"} <= {*database.columns.get("MPI_RANKS", [])}:
            columns = [database.integer("MPI_RANKS", name) for name in ("globalTid", "rank")]
            told = {_process(thread): rank for thread, rank in database.rows("MPI_RANKS", columns)}
            if told:
                return {pid: rank for pid, rank in told.items() if 0 <= rank < 2**31}
        said = {pid: found for pid, found in self._ranks.items() if len(found) == 1}
        if said and {*self._devices} <= {*said}:
            return {pid: next(iter(found)) for pid, found in said.items()}
        return ranks_by_device(self._devices, self._report)

    def _said(self, table: str, name: str) -> str:
        if not {"name", "value"} <= {*self._database.columns.get(table, [])}:
            return ""
        columns = [self._database.text(table, column) for column in ("name", "value")]
        return str(dict(self._database.rows(table, columns)).get(name, ""))


def _calls(call: NDArray[Any]) -> list[str]:
    return [f'{{"correlation":{number}}}' for number in call.tolist()]


def _copy_name(kind: int) -> str:
    return f"Memcpy {_COPY_KINDS.get(kind, '')}".rstrip()


def _memset(kind: int) -> str:
    del kind
    return "Memset"


def _process(identifier: int) -> str:
    """The pid in a global number of a process or thread: its bits 24 to 47."""
    return str(identifier >> 24 & 0xFFFFFF) if identifier != -1 else "0"


def _host_thread(identifier: int) -> tuple[str, str]:
    return _process(identifier), str(identifier & 0xFFFFFF)
