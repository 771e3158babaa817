"""What parsers of Chrome traces cost, each in a process of its own: a table in Markdown.

    python -m studies.bench.trace_readers                       # 1 GB; 10 minutes and 15 GB
    python -m studies.bench.trace_readers --megabytes 20

Each makes columns of all events: letter, name, process, thread, time and duration. CPU seconds are
user and system time of all threads, memory is the largest resident set beyond that of the imports,
as a ratio of the file. Parsers that are not installed are left out, and named.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from studies.bench.chrome_trace import write

KEYS = ("ph", "name", "pid", "tid", "ts", "dur")
# What holds every event as an object needs ten times the file.
WHOLE_MEGABYTES = 200.0


def _columns(events: Iterable[dict[str, Any]]) -> int:
    events = list(events)
    columns = {key: [event.get(key) for event in events] for key in KEYS}
    times = np.array([time or 0 for time in columns["ts"]], np.float64)
    return len(times)


def with_json(path: Path) -> int:
    return _columns(json.loads(path.read_bytes())["traceEvents"])


def with_orjson(path: Path) -> int:
    import orjson

    return _columns(orjson.loads(path.read_bytes())["traceEvents"])


def with_pandas(path: Path) -> int:
    import pandas

    return len(pandas.DataFrame(json.loads(path.read_bytes())["traceEvents"]))


def with_msgspec(path: Path) -> int:
    import msgspec

    class Event(msgspec.Struct, gc=False):
        ph: str
        name: str = ""
        pid: int | str = 0
        tid: int | str = 0
        ts: float = 0.0
        dur: float = 0.0
        args: msgspec.Raw = msgspec.Raw()

    class Document(msgspec.Struct):
        traceEvents: list[Event]

    events = msgspec.json.decode(path.read_bytes(), type=Document).traceEvents
    columns = {key: [getattr(event, key) for event in events] for key in KEYS}
    return len(np.array(columns["ts"], np.float64))


def with_pysimdjson(path: Path) -> int:
    import simdjson

    events = simdjson.Parser().parse(path.read_bytes())["traceEvents"]
    return _columns({key: event.get(key) for key in KEYS} for event in events)


def with_ijson(path: Path) -> int:
    import ijson

    with open(path, "rb") as file:
        return _columns(
            {key: event.get(key) for key in KEYS}
            for event in ijson.items(file, "traceEvents.item", use_float=True)
        )


def with_polars(path: Path) -> int:
    import polars

    table = polars.read_json(path, infer_schema_length=None).select("traceEvents")
    return len(table.explode("traceEvents").unnest("traceEvents").select(KEYS))


def with_duckdb(path: Path) -> int:
    import duckdb

    events = (
        f"(SELECT unnest(traceEvents) AS e FROM read_json('{path}', maximum_object_size={2**31}))"
    )
    table = duckdb.sql(f"SELECT {', '.join(f'e.{key}' for key in KEYS)} FROM {events}").arrow()
    return (
        sum(batch.num_rows for batch in table.to_batches())
        if hasattr(table, "to_batches")
        else (table.read_all().num_rows)
    )


def _ours(path: Path, native: bool) -> int:
    from hvdtune.timeline.reading.json import chrome_json
    from hvdtune.timeline.reading.json.batch import PythonScanner
    from hvdtune.timeline.reading.json.damage import DamageReport
    from hvdtune.timeline.reading.json.source import chunks

    report, rows = DamageReport(str(path)), []
    scanner = chrome_json.new_scanner() if native else PythonScanner()
    with open(path, "rb") as file:
        chrome_json.parse(chunks(file, b"", report), report, lambda b: rows.append(len(b)), scanner)
    return sum(numbers["read"] for numbers in report.counts().values())


def hvdtune_in_python(path: Path) -> int:
    return _ours(path, native=False)


def hvdtune_native(path: Path) -> int:
    return _ours(path, native=True)


def hvdtune_to_cache(path: Path) -> int:
    from hvdtune.timeline.reading import cache

    cache.cache_path(path).unlink(missing_ok=True)
    with cache.cached(path) as kept:
        assert kept is not None
        parsed, _ = kept.statistics()
    return sum(numbers["read"] for numbers in parsed.counts.values())


def hvdtune_stats_from_cache(path: Path) -> int:
    from hvdtune.timeline.analysis.overview import overview

    return sum(numbers["read"] for numbers in overview([path]).counts().values())


def hvdtune_slices_from_cache(path: Path) -> int:
    from hvdtune.timeline import load

    return sum(numbers["read"] for numbers in load(path).counts.values())


Parser = Callable[[Path], int]
WHOLE: list[tuple[str, Parser]] = [
    ("json", with_json),
    ("orjson", with_orjson),
    ("pandas", with_pandas),
    ("msgspec", with_msgspec),
    ("simdjson", with_pysimdjson),
    ("ijson", with_ijson),
    ("polars", with_polars),
    ("duckdb", with_duckdb),
]
# In this order: the second needs what the first leaves.
OURS: list[Parser] = [
    hvdtune_in_python,
    hvdtune_native,
    hvdtune_to_cache,
    hvdtune_stats_from_cache,
    hvdtune_slices_from_cache,
]
_IMPORTS = {
    "pandas": "pandas",
    **{name: name for name in ("orjson", "msgspec", "simdjson", "ijson", "polars", "duckdb")},
}


def measure(parser: Parser, path: Path, imports: str | None) -> tuple[float, float, int]:
    """CPU seconds, memory as a ratio of the file, and the number of events."""
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(parser, path, imports, writer))
    with reader, writer:
        process.start()
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"{parser.__name__} ended with {process.exitcode}")
        seconds, extra, events = reader.recv()
    process.close()
    return seconds, extra / path.stat().st_size, events


def _measured(parser: Parser, path: Path, imports: str | None, results: Connection) -> None:
    if imports:
        importlib.import_module(imports)
    else:
        importlib.import_module("hvdtune.timeline.analysis.overview")
    before, begun = _peak_bytes(), time.process_time()
    events = parser(path)
    results.send((time.process_time() - begun, _peak_bytes() - before, events))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(path: Path, whole: Path) -> Iterable[str]:
    """Lines of the table: those that hold everything read `whole`, ours reads `path`."""
    yield "| parser | file MB | CPU s | CPU s per 100 MB | memory, of the file | events |"
    yield "|---|---:|---:|---:|---:|---:|"
    missing = []
    for name, parser in WHOLE:
        imports = _IMPORTS.get(name, "json")
        if importlib.util.find_spec(imports) is None:
            missing.append(name)
        else:
            yield _line(name, parser, whole, imports)
    for parser in OURS:
        yield _line(parser.__name__.replace("_", " "), parser, path, None)
    if missing:
        yield f"\nnot installed: {', '.join(missing)}"


def _line(name: str, parser: Parser, path: Path, imports: str | None) -> str:
    megabytes = path.stat().st_size / 1e6
    try:
        seconds, ratio, events = measure(parser, path, imports)
    except RuntimeError as error:
        return f"| {name} | {megabytes:.0f} | {error} | | | |"
    rate = 100 * seconds / megabytes
    return f"| {name} | {megabytes:.0f} | {seconds:.2f} | {rate:.2f} | {ratio:.2f} | {events:,} |"


def main() -> None:
    """Parses the command line, writes the traces and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=1000.0)
    parser.add_argument("--folder", type=Path, help="[default: a temporary one]")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    try:
        path, whole = folder / "trace.json", folder / "whole.json"
        write(path, int(options.megabytes * 1e6))
        if options.megabytes > WHOLE_MEGABYTES:
            write(whole, int(WHOLE_MEGABYTES * 1e6))
        else:
            os.link(path, whole)
        for line in table(path, whole):
            print(line, flush=True)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
