"""What a profile was measured on, and how far that is from here."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hvdtune.errors import TraceFormatError, UsageError
from hvdtune.tuner.files import field_fault
from hvdtune.tuner.measure.run import JobInfo

# Probes of one link on a busy machine differ by up to three times.
_LINK_DIFFERS = 4.0
# What one side does not know is taken as this far away.
_UNKNOWN = 1.0


@dataclass(frozen=True)
class Tensors:
    """What ranks reduce each step; `octaves` counts them by floor(log2(bytes))."""

    count: int
    bytes: int
    octaves: Mapping[int, int]


@dataclass(frozen=True)
class LinkSpeed:
    """An allreduce among all ranks: of 4 bytes, and of 4 MiB in megabytes reduced per second."""

    latency_us: float
    mb_per_s: float


@dataclass(frozen=True)
class Fingerprint:
    """What a setting's worth depends on; None: not known.

    `slots` is ranks per host, most first; `cores` and `processor` are those of the launcher's
    machine; `frameworks` names versions.
    """

    world: int | None = None
    slots: tuple[int, ...] | None = None
    transport: str | None = None
    tensors: Tensors | None = None
    link: LinkSpeed | None = None
    cores: int | None = None
    processor: str | None = None
    hvdtune: str | None = None
    python: str | None = None
    frameworks: Mapping[str, str] | None = None


def parse_fingerprint(stored: Mapping[str, Any]) -> Fingerprint:
    """The fingerprint in a profile; further keys are left alone. Raises UsageError."""
    try:
        return msgspec.convert(stored, Fingerprint)
    except msgspec.ValidationError as error:
        raise UsageError(f"fingerprint: {field_fault(error)}") from error


def complete_fingerprint(
    known: Mapping[str, Any] | None, job: JobInfo | None, run_dir: Path
) -> dict[str, Any]:
    """Complete what is known before a launch by what it shows: ranks, hosts and tensors."""
    fingerprint: dict[str, Any] = {}
    if job is not None:
        fingerprint |= {"world": job.size, "hosts": list(job.hosts)}
    tensors = recorded_tensors(run_dir)
    if tensors is not None:
        fingerprint["tensors"] = msgspec.to_builtins(tensors)
    return fingerprint | dict(known or {})


def recorded_tensors(run_dir: Path) -> Tensors | None:
    """The tensors in rank 0's raw trace of the latest launch that has one, running or not."""
    for path in _raw_traces(run_dir):
        if (tensors := traced_tensors(path)) is not None:
            return tensors
    return None


def recorded_operations(run_dir: Path) -> set[str]:
    """Names of the operations in rank 0's raw trace of the latest launch, running or not."""
    from hvdtune.timeline.model.schema import COLLECTIVES, KINDS
    from hvdtune.timeline.reading.formats.hvt import read_rank_file

    for path in _raw_traces(run_dir):
        with contextlib.suppress(TraceFormatError):
            file = read_rank_file(path)
            kinds = file.records["duration_and_kind"] >> 48
            codes = [KINDS[name].code for name in COLLECTIVES]
            sent = {
                int(name) for code in codes for name in set(file.records["name"][kinds == code])
            }
            return {file.names[name] for name in sent & file.names.keys()}
    return set()


def _raw_traces(run_dir: Path) -> list[Path]:
    """Of rank 0, the latest launch first."""
    launches = sorted(
        run_dir.glob("ranks/launch-*/rank-0.hvt"),
        key=lambda path: int(path.parent.name.removeprefix("launch-")),
    )
    return launches[::-1]


def traced_tensors(path: Path) -> Tensors | None:
    """The tensors reduced more than once in a rank's raw trace, None where there are none.

    Once only: those without a name, which are numbered, and those of the start. Small gradients
    that travel as one tensor count as one.
    """
    from hvdtune.timeline.model.schema import KINDS
    from hvdtune.timeline.reading.formats.hvt import read_rank_file

    try:
        file = read_rank_file(path)
    except TraceFormatError:
        return None
    kinds = file.records["duration_and_kind"] >> 48
    reduced = file.records[(kinds == KINDS["ALLREDUCE"].code)]
    times = Counter(zip(reduced["name"].tolist(), reduced["arg"].tolist(), strict=True))
    sizes = [size for (_, size), count in times.items() if count > 1 and size > 0]
    if not sizes:
        return None
    octaves = Counter(size.bit_length() - 1 for size in sizes)
    return Tensors(len(sizes), sum(sizes), dict(sorted(octaves.items())))


def differences(there: Fingerprint, here: Fingerprint) -> Iterator[str]:
    """One phrase per thing known of both and different; the link by more than a probe errs."""
    for what, one, other in (
        ("ranks", there.world, here.world),
        ("ranks per host", _listed(there.slots), _listed(here.slots)),
        ("transport", there.transport, here.transport),
        ("tensors", _tensors_text(there.tensors), _tensors_text(here.tensors)),
        ("cores", there.cores, here.cores),
        ("processor", there.processor, here.processor),
        ("hvdtune", there.hvdtune, here.hvdtune),
        ("Python", _minor(there.python), _minor(here.python)),
        *(
            (name, version, (here.frameworks or {}).get(name))
            for name, version in (there.frameworks or {}).items()
        ),
    ):
        if one is not None and other is not None and one != other:
            yield f"{what}: {one} there, {other} here"
    if there.link is not None and here.link is not None and _link_differs(there.link, here.link):
        yield f"link: {_link_text(there.link)} there, {_link_text(here.link)} here"


def distance(one: Fingerprint, other: Fingerprint) -> float:
    """Return how far apart two fingerprints are; 0: alike.

    A sum in octaves: of the number of ranks, twice that of hosts, of the number of tensors and by
    how many octaves their sizes are moved on average (earth mover's distance), of the link's rate
    and half that of its latency, half that of cores; 1 for another transport, a quarter for
    another version of hvdtune; 1 for each of these parts that either side does not know.
    """
    parts = (
        _both(one.world, other.world, _octaves),
        _both(one.slots, other.slots, lambda a, b: 2 * _octaves(len(a), len(b))),
        _both(one.transport, other.transport, lambda a, b: float(a != b)),
        _both(one.tensors, other.tensors, _tensor_distance),
        _both(
            one.link,
            other.link,
            lambda a, b: (
                _octaves(a.mb_per_s, b.mb_per_s) + _octaves(a.latency_us, b.latency_us) / 2
            ),
        ),
        _both(one.cores, other.cores, lambda a, b: _octaves(a, b) / 2),
        _both(one.hvdtune, other.hvdtune, lambda a, b: (a != b) / 4),
    )
    return math.fsum(parts)


def _both(one: Any, other: Any, measure: Any) -> float:
    return _UNKNOWN if one is None or other is None else float(measure(one, other))


def _octaves(one: float, other: float) -> float:
    if one <= 0 or other <= 0:
        return _UNKNOWN
    return abs(math.log2(one / other))


def _tensor_distance(one: Tensors, other: Tensors) -> float:
    moved = ahead = 0.0
    sizes = [*one.octaves, *other.octaves]
    for octave in range(min(sizes, default=0), max(sizes, default=0)):
        share = one.octaves.get(octave, 0) / max(one.count, 1)
        ahead += share - other.octaves.get(octave, 0) / max(other.count, 1)
        moved += abs(ahead)
    return moved + _octaves(one.count, other.count)


def _link_differs(one: LinkSpeed, other: LinkSpeed) -> bool:
    rate = _octaves(one.mb_per_s, other.mb_per_s)
    latency = _octaves(one.latency_us, other.latency_us)
    return max(rate, latency) > math.log2(_LINK_DIFFERS)


def _link_text(link: LinkSpeed) -> str:
    return f"{link.latency_us:.3g} us and {link.mb_per_s:.0f} MB/s"


def _tensors_text(tensors: Tensors | None) -> str | None:
    if tensors is None:
        return None
    return f"{tensors.count} ({tensors.bytes / 1e6:.4g} MB in total)"


def _listed(slots: tuple[int, ...] | None) -> str | None:
    return None if slots is None else ", ".join(map(str, slots))


def _minor(version: str | None) -> str | None:
    return None if version is None else ".".join(version.split(".")[:2])
