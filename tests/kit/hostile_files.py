"""Random, repeated and nested files of every format, read one after the other within limits.

`python -m tests.kit.hostile_files BYTES CPU_SECONDS MEMORY_MB FOLDER FORMAT...` prints the label of
each file before it is read, and ends with an error where one is neither read nor refused within the
limits. The memory limit is RLIMIT_DATA above the memory of the imports and one small trace: private
memory, without mapped files and reserved addresses.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hvdtune.errors import HvdtuneError
from tests.kit import flight_recorder, gpu_databases, nccl_reports, rank_files
from tests.kit.traces import KINETO, event, write


class HostileFile(NamedTuple):
    """A file to read.

    Attributes:
        label: for messages.
        data: the first bytes, after which `unit` is repeated up to the size.
    """

    label: str
    data: bytes
    unit: bytes = b""


Files = Iterator[HostileFile]
_HEADS = (b"", b"[", b'{"traceEvents":[{"ph":"X","ts":1},')
_UNITS = (
    b"{", b"[", b'"', b'{"', b'{"a":', b'{"k":[', b"{},", b"1,", b"\\", b"\0", b"\xff", b"NaN,",
    b'{"ph":"X"},', b'{"ph":"B","ts":1},', b'{"ph":"X","ts":1,"dur":1},', b'{"ph":"X","a":NaN},',
    b'{"ph":"X","name":"\\c"},', b'{"ph":"X","args":{', b'"a":{"ph":1},', b'"a":[{"ph":"X"}],',
    b'{"ph":"b","id":1,"ts":2},{"ph":"f","id":1,"ts":2},', b"{'ph':'X'},", b"9", b'"\\ud800',
)  # fmt: skip


def chrome(size: int, chance: random.Random) -> Files:
    for unit in _UNITS:
        head = chance.choice(_HEADS)
        yield HostileFile(f"{head!r} and {unit!r}", head, unit)
    for deep in (b'{"k":[', b'{"ph":"X","args":{"k":['):
        yield HostileFile(f"long and deep {deep!r}", b"[" + deep * 300, b"1,")
        yield HostileFile(f"deep again {deep!r}", b"[", deep * 300 + b"1," * 5000)
    tokens = [*b'{}[]:,"\\0 \n', *(b'"ph":', b'"X"', b'{"ph":"X",', b"null", b"1e5")]
    parts = [bytes([token]) if isinstance(token, int) else token for token in tokens]
    for head in _HEADS:
        yield HostileFile("random tokens", head + b"".join(chance.choices(parts, k=size // 2)))
    yield HostileFile("random bytes", b"[" + chance.randbytes(size))


def horovod(size: int, _: random.Random) -> Files:
    head = b'[{"ph":"M","name":"process_name","pid":1,"args":{"name":"t"}},'
    for unit in (
        b'{"ph":"B","name":"NEGOTIATE_ALLREDUCE","pid":1,"ts":1},',
        b'{"ph":"X","name":"0","pid":1,"ts":1,"dur":0},',
        b'{"ph":"E","pid":1,"ts":1},',
        b'{"ph":"i","name":"CYCLE_START","pid":1,"ts":1},',
    ):
        yield HostileFile(unit.decode(), head + unit, unit)
    threads = b"".join(
        b'{"ph":"B","name":"ALLREDUCE","pid":%d,"ts":1},' % k for k in range(size // 50)
    )
    yield HostileFile("a thread for each event", head + threads)


def kineto(size: int, chance: random.Random) -> Files:
    whole = gzip.decompress(next(iter(sorted(KINETO.iterdir()))).read_bytes())
    at = whole.index(b'"traceEvents"')
    for unit in (whole[at + 2000 : at + 9000], b'{"ph":"X","cat":"kernel","name":"ncclA","ts":1},'):
        yield HostileFile("a part repeated", whole[: at + 3000], unit)
    cut = bytearray(whole[:size])
    for place in chance.sample(range(len(cut)), len(cut) // 50):
        cut[place] = chance.randrange(256)
    yield HostileFile("random damage", bytes(cut))


def hvt(size: int, chance: random.Random) -> Files:
    start = rank_files.header() + rank_files.metadata()
    for label, unit in (
        ("marks of blocks", b"HVDB"),
        ("empty blocks", rank_files.block(3, b"")),
        ("false blocks", b"HVDB\3\0\0\0\1\0\0\0\0\0\0\0"),
        ("names", rank_files.names({1: "a", 2: ""})),
        ("metadata", rank_files.block(1, b"[" * 900)),
        ("records", rank_files.records([rank_files.record("ALLREDUCE", 5, 9, name=1)])),
    ):
        yield HostileFile(label, start, unit)
    yield HostileFile("random bytes", start + chance.randbytes(size))
    code = rank_files.records(chance.randbytes(32) for _ in range(size // 32))
    yield HostileFile("random records", start + code)


def sqlite(size: int, chance: random.Random) -> Files:
    folder = Path(os.environ["HOSTILE_FOLDER"])
    kernels = [(k, k + 1, k % 8, k, k, k, k << 24, 0, 0) for k in range(size // 60)]
    texts = [(k, "x" * 200) for k in range(10, size // 400)]
    more = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "StringIds": texts}
    made = (
        ("nsys", gpu_databases.nsys(folder / "nsys.db", {1: 0}, **more)),
        ("rocpd", gpu_databases.rocpd(folder / "rocpd.db")),
    )
    for label, path in made:
        whole = path.read_bytes()
        path.unlink()
        yield HostileFile(f"{label}, large", whole)
        for number in range(3):
            damaged = bytearray(whole)
            for place in chance.sample(range(100, len(damaged)), 30):
                damaged[place] = chance.randrange(256)
            yield HostileFile(f"{label}, random damage {number}", bytes(damaged))
    yield HostileFile("zeros", b"SQLite format 3\0", b"\0")


def dumps(size: int, chance: random.Random) -> Files:
    for unit in (b"N", b"(", b"}", b"]", b"}\x94", b")\x85", b"(t", b"(l", b"K\1", b"\x8a\x04zzzz"):
        yield HostileFile(f"pickle of {unit!r}", b"\x80\x04", unit)
    half = size // 2
    yield HostileFile("pickle of values and marks", b"\x80\x02" + b"N" * half + b"(" * half)
    whole = flight_recorder.dump([flight_recorder.entry(1)], 2)
    row = whole["entries"][0]
    for label, entries in (
        ("one entry many times", [row] * half),
        ("entries with the same sizes", [dict(row) for _ in range(size // 400)]),
    ):
        row["input_sizes"] = row["output_sizes"] = [[1024] * 16] * 64
        yield HostileFile(label, pickle.dumps(whole | {"entries": entries}, protocol=2))
    laughs: list[object] = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    groups = {str(k): {"ranks": laughs} for k in range(size // 100)}
    yield HostileFile("shared lists", pickle.dumps(whole | {"pg_config": groups}, protocol=2))
    listed = str([*range(size // 20)])
    groups = {str(k): {"ranks": listed} for k in range(size // 50)}
    yield HostileFile("shared texts", pickle.dumps(whole | {"pg_config": groups}, protocol=2))
    collide = {k * (2**61 - 1): 0 for k in range(300)}  # of one hash
    keys = pickle.dumps(collide, protocol=2)[:-2]
    yield HostileFile("keys of one hash", b"\x80\x02}(", keys[keys.index(b"(") + 1 :])
    text = json.dumps(whole | {"entries": [row] * (size // 4000)}).encode()
    yield HostileFile("JSON", text)
    yield HostileFile("JSON, nested", text[: text.index(b'"entries"')] + b'"entries":[', b"[")
    yield HostileFile("JSON, damaged", text[:900], b'"entries" ')
    yield HostileFile("random", b"\x80\x02" + bytes(chance.choices(b"}](Nq\0h\0u.tsae", k=size)))


def reports(size: int, chance: random.Random) -> Files:
    line = json.dumps(nccl_reports.line(0, 1, 5.0)).encode() + b"\n"
    yield HostileFile("Inspector", line, line)
    others = [line.replace(b"7f8c", b"%x" % k, 1) for k in range(size // len(line))]
    yield HostileFile("Inspector, a communicator for each line", b"".join(others))
    for unit in (b"\n", b"{", b'{"header":{', line[:90]):
        yield HostileFile(f"Inspector and {unit!r}", line, unit)
    for unit in (b"{", b"[", b'{"hash":"1","size":1},', b'{"hash":"1","size":1,"ranks":['):
        head = b'{"nccl_version":"2","communicators":['
        yield HostileFile(f"RAS and {unit!r}", head, unit)
    yield HostileFile("RAS as text", b"NCCL version 2\nJob summary\n", b"x")
    yield HostileFile("random", line + chance.randbytes(size))


def packed(size: int, chance: random.Random) -> Files:
    large = size * 200
    for label, unit in (
        ("events", b'{"ph":"X","ts":1,"dur":1},'),
        ("objects", b"{},"),
        ("spaces", b" "),
    ):
        text = b"[" + unit * (large // len(unit))
        yield HostileFile(f"gzip of {label}", gzip.compress(text, 1))
        yield HostileFile(f"zip of {label}", _zip([text]))
    for pack in (bz2.compress, lambda data: lzma.compress(data, preset=0), gzip.compress):
        once = pack(b"[" * (large // 4))
        yield HostileFile("packed twice", gzip.compress(once))
        yield HostileFile("packed", once)
        yield HostileFile("packed, random damage", once[:50] + chance.randbytes(size))
    yield HostileFile("many files", _zip([b'[{"ph":"X","ts":1}]'] * (size // 150)))
    yield HostileFile("headers of files", b"PK\3\4", b"PK\3\4" + bytes(26))
    yield HostileFile("marks of files", b"PK\3\4", b"PK\3\4")
    yield HostileFile("zip of bzip2", _zip([b"[" * (large // 4)], zipfile.ZIP_BZIP2))
    yield HostileFile("streams", gzip.compress(b""), gzip.compress(b""))
    yield HostileFile("streams of bzip2", bz2.compress(b""), bz2.compress(b""))


def _zip(texts: list[bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", method, compresslevel=1) as archive:
        for number, text in enumerate(texts):
            archive.writestr(f"rank-{number}.json", text)
    return whole.getvalue()


def parquet(size: int, chance: random.Random) -> Files:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hvdtune.timeline import load, write_slices

    path = Path(os.environ["HOSTILE_FOLDER"]) / "whole.parquet"
    write_slices(load(KINETO), path, "parquet")
    whole = path.read_bytes()
    for number in range(4):
        damaged = bytearray(whole)
        for place in chance.sample(range(4, len(damaged)), 20):
            damaged[place] = chance.randrange(256)
        yield HostileFile(f"random damage {number}", bytes(damaged))
    told = pq.read_schema(path).metadata
    with pq.ParquetWriter(path, pa.schema([("begin_ns", pa.int64())], metadata=told)) as writer:
        rows = pa.table({"begin_ns": pa.array([0] * 1_000_000)}).replace_schema_metadata(told)
        for _ in range(size // 20_000):
            writer.write_table(rows)
    yield HostileFile("many equal rows", path.read_bytes())
    path.unlink()
    yield HostileFile("random", b"PAR1" + chance.randbytes(size) + b"PAR1")


def autotune_log(size: int, chance: random.Random) -> Files:
    head = b"cache_enabled,cycle_time_ms,tensor_fusion_threshold,score\n"
    row = b"1,%d,%d,%d\n"
    rows = b"".join(row % (k % 90, k, k + 1) for k in range(size // 20))
    for label, data, unit in (
        ("equal rows", head, row % (1, 2, 3)),
        ("rows", head + rows, b""),
        ("commas", b"", b","),
        ("one name", b"", b"a"),
        ("a quote", head + b'"', b"1"),
        ("lines", head, b"\n"),
        ("random", head + chance.randbytes(size), b""),
    ):
        yield HostileFile(label, data, unit)


FORMATS: dict[str, Callable[[int, random.Random], Files]] = {
    each.__name__: each
    for each in (
        chrome,
        horovod,
        kineto,
        hvt,
        sqlite,
        dumps,
        reports,
        packed,
        parquet,
        autotune_log,
    )
}


def _read(path: Path, kind: str) -> Iterator[None]:
    """Read a file in each of the ways of the commands, one per step."""
    from hvdtune.core.config.knobs import default_setting
    from hvdtune.timeline import open_trace
    from hvdtune.timeline.analysis.findings.why import why
    from hvdtune.timeline.model.job_metadata import job_metadata_of
    from hvdtune.timeline.reading.opening import open_light
    from hvdtune.tuner.results.horovod_autotune_log import assess, read_autotune_log

    if kind == "autotune_log":
        assess(read_autotune_log(path), default_setting())
        return
    trace = open_trace(path)
    assert len(trace.slices) >= 0
    del trace
    yield
    light = open_light(path)
    why(light, job_metadata_of(light))


def _data_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


def main(size: int, seconds: float, memory_mb: int, folder: Path, kinds: Sequence[str]) -> None:
    """Read all files of some formats."""
    files = folder / "files"
    list(_read(write(folder / "warm.json", event("X", 1, dur=1)), "chrome"))
    for kind in kinds:
        made = FORMATS[kind](size, random.Random(1))
        for number, (label, data, unit) in enumerate(made):
            files.mkdir()
            path = files / f"rank-{number}"
            count = max(size - len(data), 0) // len(unit) if unit else 0
            path.write_bytes(data + unit * count)
            print(f"{kind}: {label}", flush=True)
            if not (child := os.fork()):
                _read_within(path, kind, seconds, memory_mb << 20)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            shutil.rmtree(files)
            if status:
                raise SystemExit(f"{kind}: {label}: status {status}")


def _read_within(path: Path, kind: str, seconds: float, memory: int) -> None:
    limit = _data_bytes() + memory
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        for _ in _read(path, kind):
            signal.setitimer(signal.ITIMER_PROF, seconds)
    except HvdtuneError as error:
        assert len(str(error)) < 2000, "a long message"


if __name__ == "__main__":
    os.environ["HOSTILE_FOLDER"] = sys.argv[4]
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
