"""Export of a setting to other programs. Pure.

What has no counterpart there becomes a comment, so that nobody believes it was carried over.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.core.config.script_knobs import is_of_script, start_variables
from hvdtune.horovod.vocabulary import KNOBS, MIB, Term
from hvdtune.tuner.results.profile import Profile
from hvdtune.tuner.space.search_space import shown
from hvdtune.tuner.space.targets import UNSET, variable_of

ExportTarget = Literal["env", "horovod-env", "horovod-yaml", "nccl", "ddp"]

_HOSTS: Final = "NCCL, which finds the topology itself"
_BUCKETS: Final = "NCCL, which neither fuses nor caches tensors"
_DDP_BUCKETS: Final = "DDP, whose buckets are fixed in advance and sent as soon as they are full"
_DDP_BACKEND: Final = "DDP, whose backend (gloo or NCCL) decides this"


@dataclass(frozen=True)
class Unmapped:
    """There is no counterpart in `where`."""

    where: str


Words = Unmapped | tuple[str, ...]  # lines of the target's own
Rule = Callable[[Setting], Words]


def export_profile(profile: Profile, target: ExportTarget) -> str:
    """The profile's setting for `target`, with comments; ends in a newline."""
    return "\n".join([*_head(profile, target), *_body(profile, target)]) + "\n"


def _head(profile: Profile, target: ExportTarget) -> Iterator[str]:
    yield f"# hvdtune: {' '.join(profile.verdict.text.split())}"
    if profile.is_unverified:
        expected = profile.verdict.expected
        known = "" if expected is None else f": {expected.unproved_elsewhere_text}"
        yield f"# This setting is not proved better than the default{known}."
    elif target != "env" and profile.adapter == "hvdtune":
        yield ("# Measured with hvdtune, not with the target program. Measure it there, too.")


def _body(profile: Profile, target: ExportTarget) -> Iterator[str]:
    setting = profile.setting
    if target == "horovod-yaml":
        yield "params:"
    indent = "  " if target == "horovod-yaml" else ""
    for knob, value in setting.items():
        if is_of_script(knob):
            if target != "env":
                yield f"# {knob}={shown(knob, value)}: a knob of the script; set it there"
            continue
        rule = _RULES[target].get(knob)
        if rule is None and target == "env":
            yield _variable(profile.adapter, knob, value)
            continue
        words = Unmapped(f"the format of {target}") if rule is None else rule(setting)
        if isinstance(words, Unmapped):
            yield f"# {knob}={shown(knob, value)}: no counterpart in {words.where}"
        else:
            yield from (f"{indent}{line}" for line in words)
    if target == "env":
        own = start_variables(setting)
        yield from (f"{name}={shlex.quote(value)}" for name, value in own.items())


def _variable(adapter: str, knob: str, value: Value) -> str:
    name = variable_of(adapter, knob)
    if not name:
        return f"# {knob}={shown(knob, value)}: an argument, not a variable; see --to ddp"
    return f"# {name} stays unset" if value == UNSET else f"{name}={_plain(value)}"


def _no(where: str) -> Rule:
    return lambda setting: Unmapped(where)


def _horovod(term: Term, *, yaml: bool) -> Rule:
    """Return the rule that translates this row's knob for Horovod."""

    def words(setting: Setting) -> Words:
        value = setting[term.knob]
        if term.missing:
            return Unmapped(term.missing)
        if term.switches:
            state = "on" if value else "off"
            other = term.switches.replace("_", "'s ")
            return (f"# {term.knob}={_plain(value)}: the {other} turns it {state}",)
        if any(not setting.get(by.knob, True) for by in KNOBS if by.switches == term.knob):
            value = 0
        note = (f"# {term.zero_note}",) if term.zero_note and value == 0 else ()
        if not yaml:
            return (*note, f"{term.variable}={_plain(value)}")
        said = f"{term.from_knob(value):.10g}" if term.mebibytes else _yaml(value)
        return (*note, f"{term.option}: {said}")

    return words


def _nccl_algorithm(setting: Setting) -> Words:
    algorithm = str(setting["allreduce_algorithm"])
    names = {"ring": "Ring", "tree": "Tree"}
    if algorithm == "auto":
        return ("# allreduce_algorithm=auto: NCCL chooses, too, if NCCL_ALGO is unset",)
    if algorithm not in names:
        return Unmapped("NCCL_ALGO")
    return (f"NCCL_ALGO={names[algorithm]}",)


def _nccl_channels(setting: Setting) -> Words:
    if setting["channels"] == 1:
        return ("# channels=1: NCCL chooses the number of sockets",)
    return (
        "# Connections between hosts, where NCCL uses TCP sockets.",
        "NCCL_SOCKET_NTHREADS=1",
        f"NCCL_NSOCKS_PERTHREAD={_plain(setting['channels'])}",
    )


def _ddp_bucket(setting: Setting) -> Words:
    megabytes = float(setting["fusion_threshold_bytes"]) / MIB
    return (
        "# For DistributedDataParallel(...). DDP closes a bucket only after the gradient that",
        "# reaches this size, so buckets may be larger.",
        f"bucket_cap_mb={megabytes:.10g}",
    )


def _ddp_first(setting: Setting) -> Words:
    size = round(float(setting["ddp_first_bucket_mb"]) * MIB)
    return (
        f"# First bucket: {size} bytes, in torch.distributed._DEFAULT_FIRST_BUCKET_BYTES. DDP",
        "# ignores it if bucket_cap_mb is passed. `hvdtune run --profile` sets both sizes.",
    )


_RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "env": {},
    "horovod-env": {term.knob: _horovod(term, yaml=False) for term in KNOBS},
    "horovod-yaml": {term.knob: _horovod(term, yaml=True) for term in KNOBS},
    "nccl": {
        **{term.knob: _no(_HOSTS if term.routes else _BUCKETS) for term in KNOBS},
        "chunk_bytes": _no("NCCL: NCCL_BUFFSIZE is the memory of a channel, not a piece's size"),
        "allreduce_algorithm": _nccl_algorithm,
        "channels": _nccl_channels,
    },
    "ddp": {
        **{
            term.knob: _no(_DDP_BACKEND if term.routes or term.missing else _DDP_BUCKETS)
            for term in KNOBS
        },
        "fusion_threshold_bytes": _ddp_bucket,
        "ddp_bucket_cap_mb": lambda setting: (f"bucket_cap_mb={setting['ddp_bucket_cap_mb']:g}",),
        "ddp_first_bucket_mb": _ddp_first,
        "ddp_gradient_as_bucket_view": lambda setting: (
            f"gradient_as_bucket_view={bool(setting['ddp_gradient_as_bucket_view'])}",
        ),
    },
}


def _plain(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _yaml(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
