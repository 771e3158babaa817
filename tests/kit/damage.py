"""Cuts and damages traces, and says whether a reader did with them what it promises."""

from pathlib import Path

from hvdtune.errors import TraceFormatError, UsageError
from hvdtune.timeline import Trace, load
from hvdtune.timeline.model.slices import COLUMNS


def read_damaged(path: Path) -> Trace | None:
    """Read a damaged trace and return what is left of it, None if nothing is.

    Raises AssertionError if what is left is not sound. Any other exception escaped the reader.
    """
    try:
        model = load(path)
    except TraceFormatError as error:
        assert str(path) in str(error), error
        assert "\n" not in str(error), error
        assert -1 <= error.offset <= path.stat().st_size * 1032, error.offset
        return None
    except UsageError:
        raise AssertionError(f"{path} is a file") from None
    assert list(model.slices.columns) == list(COLUMNS)
    assert (model.slices["end_ns"] >= model.slices["begin_ns"]).all()
    for phase, numbers in model.counts.items():
        assert numbers["read"] == numbers["shown"] + numbers["reported"], phase
        assert not numbers["reported"] or model.warnings
    return model


def cut(path: Path, whole: bytes, length: int) -> Trace | None:
    """Read the first `length` bytes of a trace and check that a warning says what is missing."""
    path.write_bytes(whole[:length])
    model = read_damaged(path)
    if model is not None and length < len(whole.rstrip()):
        said = " ".join(model.warnings)
        assert "byte" in said or "did not close it" in said, said
    return model


def replace_byte(path: Path, whole: bytes, at: int, byte: int) -> Trace | None:
    """Read a trace of which one byte is replaced."""
    path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
    return read_damaged(path)
