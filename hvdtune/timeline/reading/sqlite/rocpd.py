"""Databases of rocprofv3 (rocpd, schema version 3), which ends the names of tables in an id."""

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.reading.json.damage import DamageReport
from hvdtune.timeline.reading.json.rows import NO_TIME, SliceRows
from hvdtune.timeline.reading.sqlite.database import NumberedTexts, ProfileDatabase, not_shown
from hvdtune.timeline.reading.sqlite.ranks import ranks_by_device
from hvdtune.timeline.reading.sqlite.tracks import name_tracks, stream_of

KEY = "rocpd"
_KERNELS, _COPIES, _REGIONS = "rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region"
_READ: Final = (_KERNELS, _COPIES, _REGIONS)
_VARIABLES: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def recognizes(database: ProfileDatabase) -> bool:
    """Whether it is such a database."""
    return any(table.startswith(_READ) for table in database.columns)


class RocpdReader:
    """Reads one database, which may hold the tables of several processes."""

    def __init__(self, database: ProfileDatabase, report: DamageReport, rows: SliceRows) -> None:
        self._database = database
        self._report = report
        self._rows = rows
        self._devices: dict[str, set[int]] = {}
        self._pids: dict[tuple[str, int], tuple[str, str]] = {}  # with their commands
        self._ranks: dict[str, int] = {}

    def read(self) -> dict[str, Any]:
        """Give all rows on; what is known beside them."""
        said: dict[str, Any] = {}
        known = set()
        for end in sorted({end for end in map(_ending, self._database.columns) if end is not None}):
            known |= {name + end for name in _READ}
            self._read_processes(end)
            self._read_kernels(end)
            self._read_copies(end)
            self._read_regions(end)
            for (host,) in self._of("rocpd_info_node", end, "hostname", texts=True):
                said["host"] = host
        self._rows.finish()
        programs = {pid: command.split(" ")[0] for pid, command in self._pids.values()}
        name_tracks(self._rows.tracks, programs, "agent")
        for table, columns in sorted(self._database.columns.items()):
            if "start" in columns and table not in known and "_info_" not in table:
                count = self._database.count(table)
                self._report.left_out("X", not_shown(table), count)
        told = {pid: rank for pid, rank in self._ranks.items() if pid in self._devices}
        whole = told and len(told) == len(self._devices)
        said["ranks"] = told if whole else ranks_by_device(self._devices, self._report)
        return said

    def _of(self, name: str, end: str, *columns: str, texts: bool = False) -> Any:
        """Rows of a small table, of texts or of whole numbers."""
        table = name + end
        if not {*columns} <= {*self._database.columns.get(table, [])}:
            return ()
        expression = self._database.text if texts else self._database.integer
        return self._database.rows(table, [expression(table, column) for column in columns])

    def _columns(self, table: str, *columns: str) -> Any:
        integer = self._database.integer
        if table not in self._database.columns:
            return
        times = [integer(table, name, default=NO_TIME) for name in ("start", "end")]
        expressions = [*times, *(integer(table, name) for name in columns)]
        for rows in self._database.batches(table, expressions):
            yield np.array(rows, np.int64).T

    def _read_processes(self, end: str) -> None:
        names = ("id", "pid", "command", "environment")
        for number, pid, command, variables in self._of(
            "rocpd_info_process", end, *names, texts=True
        ):
            self._pids[end, int(number)] = (pid, command)
            try:
                told = msgspec.json.decode(variables or "{}", type=dict[str, Any])
            except (msgspec.MsgspecError, ValueError, RecursionError):
                continue
            for name in _VARIABLES:
                value = str(told.get(name, ""))
                if value.isdecimal() and value.isascii() and len(value) < 8:
                    self._ranks.setdefault(pid, int(value))

    def _pid(self, end: str, number: int) -> str:
        return self._pids.get((end, number), (str(max(number, 0)), ""))[0]

    def _read_kernels(self, end: str) -> None:
        names = NumberedTexts(
            self._database, f"rocpd_info_kernel_symbol{end}", "id", "display_name"
        )
        columns = ("pid", "agent_id", "stream_id", "kernel_id", "dispatch_id")
        for begin, stop, pid, agent, stream, kernel, call in self._columns(
            _KERNELS + end, *columns
        ):
            self._rows.add(
                self._on_devices(end, pid, agent, stream),
                self._rows.codes(kernel, names.of),
                "kernel",
                (begin, stop),
                [f'{{"dispatch":{number}}}' for number in call.tolist()],
            )

    def _read_copies(self, end: str) -> None:
        names = NumberedTexts(self._database, f"rocpd_string{end}", "id", "string")
        columns = ("pid", "dst_agent_id", "stream_id", "name_id", "size")
        for begin, stop, pid, agent, stream, name, size in self._columns(_COPIES + end, *columns):
            self._rows.add(
                self._on_devices(end, pid, agent, stream),
                self._rows.codes(name, names.of),
                "gpu_memcpy",
                (begin, stop),
                [f'{{"bytes":{moved}}}' for moved in size.tolist()],
                size=size,
            )

    def _read_regions(self, end: str) -> None:
        names = NumberedTexts(self._database, f"rocpd_string{end}", "id", "string")
        threads = dict(self._of("rocpd_info_thread", end, "id", "tid"))
        sorts = dict(self._of("rocpd_event", end, "id", "category_id"))

        def place(process: int, thread: int) -> tuple[str, str]:
            return self._pid(end, process), str(threads.get(thread, thread))

        columns = ("pid", "tid", "name_id", "event_id")
        for values in self._columns(_REGIONS + end, *columns):
            sort = np.array([sorts.get(event, -1) for event in values[5].tolist()], np.int64)
            marks = np.array([number for number in np.unique(sort).tolist()
                              if "MARKER" in names.of(number)], np.int64)  # fmt: skip
            by_user = np.isin(sort, marks)
            for which, category in ((by_user, "nvtx"), (~by_user, "cuda_runtime")):
                begin, stop, pid, thread, name, _ = values[:, which]
                if len(begin):
                    self._rows.add(
                        self._rows.threads([pid, thread], place),
                        self._rows.codes(name, names.of),
                        category,
                        (begin, stop),
                        [""] * len(begin),
                    )

    def _on_devices(
        self, end: str, process: NDArray[Any], agent: NDArray[Any], stream: NDArray[Any]
    ) -> NDArray[np.int32]:
        def place(process: int, agent: int, stream: int) -> tuple[str, str]:
            pid = self._pid(end, process)
            self._devices.setdefault(pid, set()).add(agent)
            return stream_of(pid, agent, stream)

        return self._rows.threads([process, agent, stream], place)


def _ending(table: str) -> str | None:
    """What a process adds to the names of its tables; None of tables that are not read."""
    for name in _READ:
        if table.startswith(name):
            return table.removeprefix(name)
    return None
