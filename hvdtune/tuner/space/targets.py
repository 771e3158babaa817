"""What can be tuned by restarting: knobs of runtimes that are not the live core's own. Pure.

A target is a table of knobs with the values that the command has by itself ("native"). Where a
setting differs from them its environment says so, elsewhere the command is left as it is.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, cast

from hvdtune.core.config.knobs import Knob, Setting, Value, parse_assignments
from hvdtune.core.config.script_knobs import is_of_script
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import FOREIGN_KNOBS, KNOBS, Limits

Adapter = Literal["hvdtune", "horovod", "ddp", "command"]

UNSET: Final = "unset"
_RANGE: Final = re.compile(r"(-?[\d.]+)\.\.(-?[\d.]+)")


@dataclass(frozen=True)
class Target:
    """`variables` is the environment variable of each knob that has one, by knob; `searched` are
    the knobs that are tuned when the caller names none."""

    knobs: tuple[Knob, ...]
    native: Mapping[str, Value]
    variables: Mapping[str, str]
    searched: tuple[str, ...]

    def environ(self, setting: Setting) -> dict[str, str]:
        """The variables that give a command this setting; none for what it has by itself."""
        return {
            self.variables[name]: _text(value)
            for name, value in setting.items()
            if name in self.variables and value != self.native[name]
        }


def _int(name: str, unit: str, low: int, high: int, default: int, doc: str) -> Knob:
    return Knob(name, unit, "int", low, high, True, default, "restart", doc=doc)


def _bool(name: str, doc: str, *, default: bool = False) -> Knob:
    return Knob(name, "", "bool", 0, 1, False, default, "restart", doc=doc)


def _choice(name: str, choices: Sequence[str], doc: str) -> Knob:
    top = len(choices) - 1
    return Knob(
        name, "", "category", 0, top, False, choices[0], "restart", doc=doc, choices=tuple(choices)
    )


_HOROVOD_SEARCHED: Final = ("fusion_threshold_bytes", "cycle_time_ms", "cache_capacity")


def _horovod_rows() -> list[tuple[str, Knob]]:
    """Horovod's knobs with its own ranges and defaults; those searched by default come first."""
    terms = {term.knob: term for term in (*KNOBS, *FOREIGN_KNOBS) if term.variable}
    names = dict.fromkeys((*_HOROVOD_SEARCHED, *terms))
    return [
        (terms[name].variable, _horovod_knob(name, limits))
        for name in names
        if (limits := terms[name].limits) is not None
    ]


def _horovod_knob(name: str, limits: Limits) -> Knob:
    if isinstance(limits.default, bool):
        return _bool(name, limits.doc, default=limits.default)
    kind: Literal["int", "float"] = "int" if isinstance(limits.default, int) else "float"
    ends = limits.low, limits.high
    return Knob(name, limits.unit, kind, *ends, True, limits.default, "restart", doc=limits.doc)


_NCCL: Final = (
    ("NCCL_ALGO", _choice("nccl_algo", (UNSET, "Ring", "Tree"), "Algorithm of NCCL.")),
    ("NCCL_PROTO", _choice(
        "nccl_proto", (UNSET, "LL", "LL128", "Simple"), "Protocol of NCCL.")),
    ("NCCL_BUFFSIZE", _int(
        "nccl_buffsize", "bytes", 2**18, 2**26, 2**22, "Size of NCCL's buffer between two GPUs.")),
    ("NCCL_NTHREADS", _choice(
        "nccl_nthreads", (UNSET, "64", "128", "256", "512"), "Threads per CUDA block of NCCL.")),
    ("NCCL_MIN_NCHANNELS", _choice(
        "nccl_min_nchannels", (UNSET, "2", "4", "8", "16"), "Minimum number of NCCL channels.")),
)  # fmt: skip

# MiB, as DistributedDataParallel counts; applied by the hook in the ranks, not by variables.
DDP_KNOBS: Final = (
    Knob("ddp_bucket_cap_mb", "MiB", "float", 1, 1024, True, 25.0, "restart",
         doc="Size of a bucket of gradients."),
    Knob("ddp_first_bucket_mb", "MiB", "float", 1 / 16, 1024, True, 1.0, "restart",
         doc="Size of the first bucket."),
    Knob("ddp_gradient_as_bucket_view", "", "bool", 0, 1, False, False, "restart",
         doc="Make gradients views into DDP's buckets; this saves a copy."),
)  # fmt: skip
# A script that passes the one has none of its own of the other: they are given together.
DDP_SIZES: Final = frozenset({"ddp_bucket_cap_mb", "ddp_first_bucket_mb"})


def _process_rows(cores: Sequence[int], local_size: int) -> list[tuple[str, Knob]]:
    """The knobs that a rank of hvdtune takes when it starts, beside the knob table."""
    most = len(cores)
    threads = Knob("omp_num_threads", "threads", "int", 1, most, False, most, "restart")
    bound = [cores[:local_size], cores[-local_size:], cores[:: max(1, most // local_size)]]
    places = [",".join(map(str, each[:local_size])) for each in bound if local_size <= most]
    return [
        ("OMP_NUM_THREADS", replace(threads, doc="Number of OpenMP threads per rank.")),
        ("HVDTUNE_TRANSPORT", _choice("transport", ("auto", "tcp"), "Transport within a host.")),
        ("HVDTUNE_THREAD_AFFINITY", _choice(
            "thread_affinity", tuple(dict.fromkeys([UNSET, *places])),
            "CPU core for the runtime's threads of each local rank.")),
        ("HVDTUNE_ZERO_COPY", _bool(
            "zero_copy", "Keep gradients in shared memory.", default=True)),
    ]  # fmt: skip


def target_of(
    adapter: Adapter,
    environ: Mapping[str, str],
    cores: Sequence[int] = (0,),
    local_size: int = 1,
    hosts: int = 1,
    core_knobs: Sequence[Knob] = (),
) -> Target:
    """The knobs of a runtime, with what `environ` says of them as their native values.

    Args:
        cores: the processors that ranks may use.
        local_size: how many ranks a host has, of `hosts`.
        core_knobs: hvdtune's knob table; its variables are the job's affair, not the target's.

    Raises UsageError for a variable whose value cannot be.
    """
    rows: list[tuple[str, Knob]] = []
    bare: tuple[Knob, ...] = ()
    searched: tuple[str, ...] = ()
    if adapter == "hvdtune":
        rows = [*_process_rows(cores, local_size), *_NCCL]
        bare = (*core_knobs, *DDP_KNOBS)
        searched = tuple(
            knob.name
            for knob in bare
            if knob.scope == "live"
            and knob.min_hosts <= hosts
            and (knob.kind != "category" or hosts > 1)
        )
    elif adapter == "horovod":
        rows, searched = [*_horovod_rows(), *_NCCL], _HOROVOD_SEARCHED
    elif adapter == "ddp":
        rows, bare = [*_NCCL], DDP_KNOBS
        searched = tuple(knob.name for knob in bare)
    rows = [(variable, _with_native(knob, variable, environ)) for variable, knob in rows]
    knobs = (*bare, *(knob for _, knob in rows))
    return Target(
        knobs=knobs,
        native=MappingProxyType({knob.name: knob.default for knob in knobs}),
        variables=MappingProxyType({knob.name: variable for variable, knob in rows}),
        searched=searched,
    )


def with_varied(target: Target, vary: Sequence[str], environ: Mapping[str, str]) -> Target:
    """Return the target with more variables to search, each `NAME=A,B,C` or `NAME=LOW..HIGH`.

    Raises UsageError for a variable that cannot be varied like this.
    """
    varied = [varied_knob(text, environ) for text in vary]
    names = [knob.name for knob in varied]
    if len({*names, *target.native, *target.variables.values()}) < len(
        [*names, *target.native, *target.variables]
    ):
        raise UsageError("--vary names a variable twice, or one that already has a knob")
    wide = replace(
        target,
        knobs=(*target.knobs, *varied),
        variables=MappingProxyType({**target.variables, **{name: name for name in names}}),
        searched=(*target.searched, *names),
    )
    return with_native(wide, {})


def with_native(target: Target, values: Mapping[str, Value]) -> Target:
    """The target with other native values; ranges are widened to hold them."""
    knobs = tuple(
        _with_default(knob, values[knob.name]) if knob.name in values else knob
        for knob in target.knobs
    )
    return replace(target, knobs=knobs, native=MappingProxyType({k.name: k.default for k in knobs}))


def with_variables(target: Target, setting: Mapping[str, Value]) -> Target:
    """Return the target with the names that it lacks as variables, unset by themselves."""
    lacking = {name: value for name, value in setting.items() if name not in target.native}
    knobs = tuple(_choice(name, (UNSET, str(value)), "") for name, value in lacking.items())
    wide = replace(
        target,
        knobs=(*target.knobs, *knobs),
        variables=MappingProxyType({**target.variables, **{name: name for name in lacking}}),
    )
    return with_native(wide, {})


def of_any_size(knobs: Sequence[Knob]) -> tuple[Knob, ...]:
    """The knobs with any size of DDP's buckets: a script may have passed one outside of what is
    searched."""
    return tuple(
        replace(knob, low=0.0, high=math.inf) if knob.name in DDP_SIZES else knob for knob in knobs
    )


def holding(target: Target, settings: Sequence[Mapping[str, Value]]) -> Target:
    """The target whose ranges of DDP's bucket sizes are widened to hold those of the settings."""
    return replace(
        target,
        knobs=tuple(
            _widened(knob, [setting[knob.name] for setting in settings if knob.name in setting])
            if knob.name in DDP_SIZES
            else knob
            for knob in target.knobs
        ),
    )


def narrowed(target: Target, names: Collection[str]) -> Target:
    """Return the target without knobs that are neither searched by default, nor named, nor of
    hvdtune's knob table.

    So that a setting says what a study is about. Raises UsageError for names that are no knobs.
    """
    table = {knob.name: knob for knob in target.knobs}
    for name in names:
        if name not in table:
            raise UsageError(f"unknown knob {name}; the knobs are {', '.join(table)}")
    optional = {*target.variables, *(knob.name for knob in DDP_KNOBS)}
    kept = {*names, *target.searched, *(name for name in table if name not in optional)}
    kept |= DDP_SIZES if kept & DDP_SIZES else set()
    knobs = tuple(knob for knob in target.knobs if knob.name in kept)
    return with_native(replace(target, knobs=knobs), {})


def variable_of(adapter: str, name: str) -> str:
    """The environment variable of a knob in a profile of this adapter's, "" for none."""
    known = target_of(cast(Adapter, adapter), {}).variables
    if name in known or name.startswith("ddp_"):
        return known.get(name, "")
    return f"HVDTUNE_{name.upper()}" if adapter == "hvdtune" and name.islower() else name


def knobs_of_profile(
    adapter: str, settings: Sequence[Mapping[str, Value]], core_knobs: Sequence[Knob]
) -> tuple[Knob, ...]:
    """Knobs that have the values in a profile of this adapter's; hvdtune's own as they are.

    Those of a script are not among them: any of them may be in a profile.

    What other runtimes take, and other machines have (cores, say), is not known here.
    """
    own = {knob.name: knob for knob in core_knobs} if adapter == "hvdtune" else {}
    named = (name for setting in settings for name in setting)
    names = dict.fromkeys(name for name in named if not is_of_script(name))
    return tuple(
        own.get(name) or _knob_with(name, [each[name] for each in settings if name in each])
        for name in names
    )


def _knob_with(name: str, values: Sequence[Value]) -> Knob:
    if any(isinstance(value, str) for value in values):
        return _choice(name, [str(value) for value in values], "")
    if all(isinstance(value, bool) for value in values):
        return _bool(name, "")
    whole = all(isinstance(value, int) for value in values)
    ends = -math.inf, math.inf
    return Knob(name, "", "int" if whole else "float", *ends, False, values[0], "restart")


def varied_knob(text: str, environ: Mapping[str, str]) -> Knob:
    """The knob of `NAME=A,B,C`, or of `NAME=LOW..HIGH` if the environment has a number for NAME.

    Its default is what the environment has, or "unset".
    """
    name, equals, values = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or not equals or not values:
        raise UsageError(f"--vary {text}: it must be NAME=A,B,C or NAME=LOW..HIGH")
    own = environ.get(name, "")
    if match := _RANGE.fullmatch(values):
        return _varied_range(text, name, own, *match.groups())
    choices = list(dict.fromkeys([own or UNSET, *values.split(",")]))
    if "" in choices or len(choices) < 2:
        raise UsageError(f"--vary {text}: give at least two values")
    return _choice(name, choices, f"Environment variable {name}.")


def _varied_range(text: str, name: str, own: str, low_text: str, high_text: str) -> Knob:
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        raise UsageError(
            f"--vary {text}: {low_text}..{high_text} is not a range of numbers"
        ) from None
    whole = "." not in low_text + high_text
    if not low < high:
        raise UsageError(f"--vary {text}: {low_text} is not below {high_text}")
    try:
        default = int(own) if whole else float(own)
    except ValueError:
        what = f"{name}={own} is not a number" if own else f"{name} is not set"
        raise UsageError(
            f"--vary {text}: {what}; set it to the reference value, or list values: "
            f"{name}={low_text},{high_text}"
        ) from None
    if not low <= default <= high:
        raise UsageError(f"--vary {text}: {name}={own} is outside the range")
    log = low > 0 and high >= 8 * low
    kind: Literal["int", "float"] = "int" if whole else "float"
    doc = f"Environment variable {name}."
    return Knob(name, "", kind, low, high, log, default, "restart", doc=doc)


def _with_native(knob: Knob, variable: str, environ: Mapping[str, str]) -> Knob:
    text = environ.get(variable, "")
    if not text:
        return knob
    if knob.kind == "category":
        return replace(knob, default=text, choices=tuple(dict.fromkeys([text, *knob.choices])))
    wide = replace(knob, low=min(knob.low, 0), high=math.inf)
    try:
        value = parse_assignments([f"{knob.name}={text}"], [wide])[knob.name]
    except UsageError as error:
        raise UsageError(f"{variable}: {error}") from None
    return _with_default(knob, value)


def _with_default(knob: Knob, value: Value) -> Knob:
    return replace(_widened(knob, [value]), default=value)


def _widened(knob: Knob, values: Sequence[Value]) -> Knob:
    numbers = [value for value in values if not isinstance(value, str)]
    return (
        replace(knob, low=min(knob.low, *numbers), high=max(knob.high, *numbers))
        if numbers
        else knob
    )


def _text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
