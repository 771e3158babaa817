"""Feeds every reader of traces with texts that are nearly right: python -m studies.fuzz.readers.

Each target has its share of the time (--seconds, ten minutes by default) and ends at the first
input that makes a reader raise what it does not promise, or take longer than --hang-seconds.
"""

import argparse
import gzip
import io
import json
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.kit.damage import read_damaged
from tests.kit.traces import HOROVOD, KINETO, SPEEDSCOPE

ROOT = Path(__file__).parents[2]

HANG_SECONDS = 20.0
# Of a target, before the next has its turn: a round of all must fit into a short look.
_EXAMPLES = 40

NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**53, 2**63, 10**400, 1e308])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=20)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
KEYS = ["name", "cat", "pid", "tid", "ts", "dur", "tdur", "id", "id2", "args", "cycle", "s", "bp"]
NAMES = ["process_name", "thread_name", "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "0", "1", "CYCLE_START"]
NAMES += ["QUEUE", "ProfilerStep#3", "nccl:all_reduce", "STEP", "BUCKET", "cycle", "NEGOTIATE"]
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XBEiICMbenstfSTpFPNODvVRcZ") | SCALARS},
    optional={
        **dict.fromkeys(KEYS, ANY),
        "name": st.sampled_from(NAMES) | ANY,
        "ts": st.integers(0, 100) | ANY,
        "dur": st.integers(0, 50) | ANY,
        "pid": st.integers(0, 3) | ANY,
        "args": st.dictionaries(
            st.sampled_from(["name", "seq", "bytes", "dtype", "shape", "version", "x"]), ANY
        ),
    },
)
HEADS = st.dictionaries(
    st.sampled_from(
        ["otherData", "distributedInfo", "schemaVersion", "baseTimeNanoseconds", "samples", "x"]
    ),
    ANY
    | st.fixed_dictionaries(
        {"hvdtune": ANY, "meta": ANY, "tensors": ANY, "warnings": ANY, "hvdtune_files": ANY}
    )
    | st.fixed_dictionaries({"rank": ANY, "world_size": ANY})
    | st.fixed_dictionaries(
        {
            "hvdtune_files": st.fixed_dictionaries(
                {
                    "version": st.just(1),
                    "files": st.lists(
                        st.fixed_dictionaries({"path": ANY, "around": ANY, "rank": ANY}) | ANY,
                        max_size=3,
                    ),
                    "tracks": st.lists(st.lists(ANY, max_size=6) | ANY, max_size=4),
                    "origin_unix_ns": ANY,
                    "warnings": ANY,
                }
            )
        }
    ),
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "cut"]),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=3) | st.sampled_from([b'"', b"}", b"]", b",", b"{", b"\\"]),
    ),
    max_size=4,
)


def edited(text: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    for what, place, piece in edits:
        at = int(place * len(text))
        if what == "cut":
            text = text[:at]
        else:
            kept = at if what == "insert" else at + len(piece)
            text = text[:at] + (b"" if what == "delete" else piece) + text[kept:]
    return text


def _json(value: object) -> bytes:
    return json.dumps(value).encode(errors="replace")


def bytes_of_any_kind() -> st.SearchStrategy[bytes]:
    magics = [
        b"",
        b"[",
        b"{",
        b'{"traceEvents":[',
        b"HVDTRACE",
        b"\x1f\x8b",
        b"PK\x03\x04",
        b"PAR1",
    ]
    return st.tuples(st.sampled_from(magics), st.binary(max_size=300)).map(b"".join)


def documents_of_events() -> st.SearchStrategy[bytes]:
    events = st.lists(EVENTS, max_size=8)
    objects = st.tuples(HEADS, events).map(lambda pair: _json(pair[0] | {"traceEvents": pair[1]}))
    return st.tuples(events.map(_json) | objects, EDITS).map(lambda pair: edited(*pair))


def damaged_traces() -> st.SearchStrategy[bytes]:
    texts = [path.read_bytes() for path in sorted(SPEEDSCOPE.iterdir())]
    texts += [gzip.decompress(path.read_bytes())[:20_000] for path in sorted(HOROVOD.iterdir())]
    texts += [gzip.decompress(path.read_bytes())[:20_000] for path in sorted(KINETO.iterdir())]
    texts.append((ROOT / "tests/golden/timeline/trace.json").read_bytes())
    return st.tuples(st.sampled_from(texts), EDITS).map(lambda pair: edited(*pair))


def damaged_packed_traces() -> st.SearchStrategy[bytes]:
    packed = [path.read_bytes() for path in sorted(KINETO.iterdir())]
    packed.append(_zip())
    packed.append(_parquet())
    return st.tuples(st.sampled_from(packed), EDITS).map(lambda pair: edited(*pair))


def damaged_own_files() -> st.SearchStrategy[bytes]:
    whole = (ROOT / "tests/golden/timeline/rank-0.hvt").read_bytes()
    return st.tuples(EDITS, st.booleans()).map(lambda pair: _own(edited(whole, pair[0]), pair[1]))


def _own(data: bytes, mend: bool) -> bytes:
    """With the sum of each block put right, so that what it says is believed."""
    at = 32
    while mend and at + 16 <= len(data):
        (size,) = struct.unpack_from("<I", data, at + 8)
        if at + 16 + size > len(data):
            break
        payload = data[at + 16 : at + 16 + size]
        crc = zlib.crc32(payload, zlib.crc32(data[at + 4 : at + 12]))
        data = data[: at + 12] + struct.pack("<I", crc) + data[at + 16 :]
        at += 16 + size
    return data


def _zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(SPEEDSCOPE.iterdir())[:3]:
            archive.write(path, path.name)
    return packed.getvalue()


def _parquet() -> bytes:
    from hvdtune.timeline import load, write_slices

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        write_slices(load(SPEEDSCOPE / "simple.json"), path, "parquet")
        return path.read_bytes()


Target = Callable[[], st.SearchStrategy[bytes]]
TARGETS: list[Target] = [
    bytes_of_any_kind,
    documents_of_events,
    damaged_traces,
    damaged_packed_traces,
    damaged_own_files,
]


def look(target: Target, folder: Path, how: settings, hang_s: float = HANG_SECONDS) -> None:
    """Read what a target makes; raises for what it should not have done."""
    path = folder / "trace"

    @settings(how, suppress_health_check=list(HealthCheck))
    @given(target())
    def read(text: bytes) -> None:
        path.write_bytes(text)
        begun = time.process_time()
        read_damaged(path)
        assert time.process_time() - begun < hang_s, "took too long"

    read()


def main() -> None:
    """Parses the command line and looks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--hang-seconds", type=float, default=HANG_SECONDS)
    options = parser.parse_args()
    how = settings(
        max_examples=_EXAMPLES, deadline=None, database=None, phases=[Phase.generate, Phase.shrink]
    )
    until = time.monotonic() + options.seconds
    rounds = 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < until:
            for target in TARGETS:
                look(target, Path(folder), how, options.hang_seconds)
            rounds += 1
    print(f"{rounds * _EXAMPLES * len(TARGETS):,} inputs, nothing escaped")


if __name__ == "__main__":
    main()
