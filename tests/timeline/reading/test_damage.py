"""Any cut and any damaged byte leave the readable part; a sample here, all cuts as slow."""

import gzip
import json
import os
import random
import zipfile

import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import load, write_slices
from tests.kit import rank_files as files
from tests.kit.damage import cut, replace_byte
from tests.kit.traces import ALL, HOROVOD, KINETO, event, parsed

TAIL_BYTES = 48 << 10
SHORT_BYTES = 4 << 10
STRIDE = int(os.environ.get("HVDTUNE_TEST_CUT_STRIDE", "127"))  # in longer traces
PATHS = [*ALL, files.GOLDEN / "trace.json"]


def text_of(path):
    data = path.read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    return gzip.decompress(data)


def cuts(whole, count):
    tail = range(max(len(whole) - TAIL_BYTES, 0), len(whole))
    if count is None:
        return tail
    return sorted({*random.Random(1).sample(tail, min(count, len(tail))), len(whole) - 1})


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_trace_cut_anywhere_gives_what_is_before(path, tmp_path):
    whole = text_of(path)
    best = len(load(path).slices)
    for length in cuts(whole, 6):
        model = cut(tmp_path / "cut.json", whole, length)
        assert model is None or len(model.slices) <= best + 1


def test_the_longer_the_prefix_the_more_is_read(tmp_path):
    whole = text_of(KINETO / "kineto_ddp_mlp_np2_rank0.json.gz")
    sizes = []
    for length in range(2000, len(whole), len(whole) // 9):
        model = cut(tmp_path / "cut.json", whole, length)
        sizes.append(0 if model is None else len(model.slices))
    assert sizes == sorted(sizes)
    assert sizes[-1] > 2000


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_one_damaged_byte_costs_little(path, tmp_path):
    whole = text_of(path)
    chance = random.Random(path.name)
    best = len(load(path).slices)
    for _ in range(5):
        at, byte = chance.randrange(len(whole)), chance.choice(b'\x00\xff"{}[],:\\x0 ')
        model = replace_byte(tmp_path / "damaged.json", whole, at, byte)
        # A letter that is another may begin or end slices that were none; one event at most.
        assert model is None or len(model.slices) >= 0.8 * best - 3


@pytest.mark.parametrize("share", [0.05, 0.5, 0.98])
@pytest.mark.parametrize("kind", ["parquet", "hvt", "gz"])
def test_other_files_cut_short_are_read_or_refused(kind, share, tmp_path):
    if kind == "parquet":
        write_slices(load(KINETO), tmp_path / "whole", "parquet")
        whole = (tmp_path / "whole").read_bytes()
    elif kind == "hvt":
        whole = (files.GOLDEN / "rank-0.hvt").read_bytes()
    else:
        whole = next(HOROVOD.iterdir()).read_bytes()
    model = cut(tmp_path / "cut", whole, int(share * len(whole)))
    assert model is None or model.warnings


def archive(folder, method=zipfile.ZIP_DEFLATED):
    path = folder / "whole.zip"
    with zipfile.ZipFile(path, "w", method) as packed:
        packed.mkdir("ranks")
        for rank in (0, 1):
            events = [event("X", 10 * k, f"name {k * k}", dur=3 + k % 7) for k in range(300)]
            packed.writestr(f"ranks/rank-{rank}.json", json.dumps({"traceEvents": events}))
    return path.read_bytes()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_an_archive_cut_anywhere_gives_what_is_before(method, tmp_path):
    whole = archive(tmp_path, method)
    sizes = []
    for length in range(200, len(whole), len(whole) // 40):
        model = cut(tmp_path / "cut.zip", whole, length)
        sizes.append(0 if model is None else len(model.slices))
    assert sizes == sorted(sizes)
    assert sizes[len(sizes) // 2] >= 250
    model = cut(tmp_path / "cut.zip", whole, len(whole) - 1)
    assert len(model.slices) == 600
    assert f"cannot be read at byte {len(whole) - 1}" in model.warnings[0]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=pytest.mark.slow)])
def test_one_damaged_byte_of_an_archive_leaves_the_readable_part(method, share, tmp_path):
    whole = archive(tmp_path, method)
    chance = random.Random(1)
    headers = [at for at in range(len(whole)) if whole.startswith(b"PK", at)]
    # A local header has 30 bytes and a name of 17: what follows is data.
    near = sorted({at + k for at in headers for k in range(47) if at + k < len(whole)})
    looked_at = chance.sample(near, int(share * len(near)))
    for at in sorted({*looked_at, *chance.sample(range(len(whole)), int(share * 40))}):
        model = replace_byte(
            tmp_path / "damaged.zip", whole, at, whole[at] ^ chance.choice([1, 64])
        )
        assert model is not None, at
        assert len(model.slices) >= 300, at
        if at in near:
            assert len(model.slices) >= 599, at
        elif len(model.slices) < 600:
            assert "byte" in " ".join(model.warnings), at


def test_a_damaged_file_of_an_archive_says_where(tmp_path):
    whole = archive(tmp_path)
    model = replace_byte(tmp_path / "damaged.zip", whole, 1500, whole[1500] ^ 1)
    assert "zip/ranks/rank-0.json: " in model.warnings[0]
    assert "byte" in model.warnings[0]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_trace_is_cut_at_every_byte_of_its_tail(path):
    whole = shortened(text_of(path))
    for length in cuts(whole, None)[:: 1 if len(whole) <= SHORT_BYTES else STRIDE]:
        try:
            result = parsed(whole[:length])
        except TraceFormatError as error:
            assert 0 <= error.offset <= length
            continue
        assert result.warnings or length >= len(whole.rstrip())
        for numbers in result.counts.values():
            assert numbers["read"] == numbers["shown"] + numbers["reported"]


def shortened(whole):
    """Without its middle, where that is long: only the way to the tail gets shorter."""
    if len(whole) < 2 * TAIL_BYTES:
        return whole
    return (
        whole[: whole.rindex(b"{", 0, 8192)]
        + whole[whole.index(b"{", len(whole) - TAIL_BYTES - 8192) :]
    )
