"""A setting in the words of other programs. Pure.

What has no counterpart there becomes a comment, so that nobody believes it was carried over.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.tuner.results.profile import Profile
from hvdtune.tuner.space.targets import UNSET, variable_of

ExportTarget = Literal["env", "horovod-env", "horovod-yaml", "nccl", "ddp"]

_MIB: Final = 1 << 20
_NO_SPLIT: Final = "Horovod, which does not cut buckets into chunks"
_NO_CHOICE: Final = "Horovod, whose library (gloo, MPI, NCCL) chooses"
_HOSTS: Final = "NCCL, which finds the topology itself"
_BUCKETS: Final = "NCCL, which reduces what it is given"
_DDP_BUCKETS: Final = "DDP, whose buckets are settled in advance and sent as soon as they are full"
_DDP_BACKEND: Final = "DDP, whose backend (gloo, NCCL) decides"


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
        yield "# Nothing proves this setting better than the default."
    elif target != "env" and profile.adapter == "hvdtune":
        yield "# Measured under hvdtune, which is another program: measure it there, too."


def _body(profile: Profile, target: ExportTarget) -> Iterator[str]:
    setting = profile.setting
    if target == "horovod-yaml":
        yield "params:"
    indent = "  " if target == "horovod-yaml" else ""
    for knob, value in setting.items():
        rule = _RULES[target].get(knob)
        if rule is None and target == "env":
            yield _variable(profile.adapter, knob, value)
            continue
        words = Unmapped(f"the words of {target}") if rule is None else rule(setting)
        if isinstance(words, Unmapped):
            yield f"# {knob}={_plain(value)}: no counterpart in {words.where}"
        else:
            yield from (f"{indent}{line}" for line in words)


def _variable(adapter: str, knob: str, value: Value) -> str:
    name = variable_of(adapter, knob)
    if not name:
        return f"# {knob}={_plain(value)}: an argument, not a variable; see --to ddp"
    return f"# {name} stays unset" if value == UNSET else f"{name}={_plain(value)}"


def _is(name: str, knob: str) -> Rule:
    return lambda setting: (f"{name}={_plain(setting[knob])}",)


def _key(name: str, knob: str) -> Rule:
    return lambda setting: (f"{name}: {_yaml(setting[knob])}",)


def _no(where: str) -> Rule:
    return lambda setting: Unmapped(where)


def _capacity(setting: Setting) -> int:
    # Horovod has one number for both: 0 is off.
    return int(setting["cache_capacity"]) if setting.get("cache_enabled", True) else 0


def _cache_is_in(name: str) -> Rule:
    def words(setting: Setting) -> Words:
        state = "on" if setting["cache_enabled"] else "off"
        return (f"# cache_enabled={_plain(setting['cache_enabled'])}: {name} has it {state}",)

    return words


def _cycle_env(setting: Setting) -> Words:
    line = f"HOROVOD_CYCLE_TIME={_plain(setting['cycle_time_ms'])}"
    return (*_spins(setting), line)


def _cycle_yaml(setting: Setting) -> Words:
    return (*_spins(setting), f"cycle_time_ms: {_yaml(setting['cycle_time_ms'])}")


def _spins(setting: Setting) -> tuple[str, ...]:
    if setting["cycle_time_ms"] != 0:
        return ()
    return ("# 0 is driven by events in hvdtune; Horovod's thread turns without a pause.",)


def _horovod_mb(setting: Setting) -> Words:
    megabytes = float(setting["fusion_threshold_bytes"]) / _MIB
    return (f"fusion_threshold_mb: {megabytes:.10g}",)


def _nccl_algorithm(setting: Setting) -> Words:
    algorithm = str(setting["allreduce_algorithm"])
    names = {"ring": "Ring", "tree": "Tree"}
    if algorithm == "auto":
        return ("# allreduce_algorithm=auto: NCCL chooses, too; leave NCCL_ALGO unset",)
    if algorithm not in names:
        return Unmapped("NCCL_ALGO")
    return (f"NCCL_ALGO={names[algorithm]}",)


def _nccl_channels(setting: Setting) -> Words:
    if setting["channels"] == 1:
        return ("# channels=1: leave the sockets to NCCL",)
    return (
        "# Connections between hosts, where NCCL uses TCP sockets.",
        "NCCL_SOCKET_NTHREADS=1",
        f"NCCL_NSOCKS_PERTHREAD={_plain(setting['channels'])}",
    )


def _ddp_bucket(setting: Setting) -> Words:
    megabytes = float(setting["fusion_threshold_bytes"]) / _MIB
    return (
        "# For DistributedDataParallel(...). The gradient that fills a bucket is its last, so",
        "# buckets may be larger than this.",
        f"bucket_cap_mb={megabytes:.10g}",
    )


def _ddp_first(setting: Setting) -> Words:
    size = round(float(setting["ddp_first_bucket_mb"]) * _MIB)
    return (
        f"# The first bucket, {size} bytes, is torch.distributed._DEFAULT_FIRST_BUCKET_BYTES. That",
        "# counts only where bucket_cap_mb is not given: hvdtune run --profile does it.",
    )


_HOROVOD: Final[Mapping[str, Rule]] = {
    "cache_enabled": _cache_is_in("the cache's capacity"),
    "chunk_bytes": _no(_NO_SPLIT),
    "allreduce_algorithm": _no(_NO_CHOICE),
    "channels": _no(_NO_CHOICE),
}
_FLAGS: Final = ("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce")
_RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "env": {},
    "horovod-env": {
        **_HOROVOD,
        "fusion_threshold_bytes": _is("HOROVOD_FUSION_THRESHOLD", "fusion_threshold_bytes"),
        "cycle_time_ms": _cycle_env,
        "cache_capacity": lambda setting: (f"HOROVOD_CACHE_CAPACITY={_capacity(setting)}",),
        **{flag: _is(f"HOROVOD_{flag.upper()}", flag) for flag in _FLAGS},
    },
    "horovod-yaml": {
        **_HOROVOD,
        "fusion_threshold_bytes": _horovod_mb,
        "cycle_time_ms": _cycle_yaml,
        "cache_capacity": lambda setting: (f"cache_capacity: {_capacity(setting)}",),
        **{flag: _key(flag, flag) for flag in _FLAGS},
    },
    "nccl": {
        "fusion_threshold_bytes": _no(_BUCKETS),
        "cycle_time_ms": _no(_BUCKETS),
        "chunk_bytes": _no("NCCL: NCCL_BUFFSIZE is the memory of a channel, not a piece's size"),
        "cache_enabled": _no(_BUCKETS),
        "cache_capacity": _no(_BUCKETS),
        "allreduce_algorithm": _nccl_algorithm,
        "channels": _nccl_channels,
        **{flag: _no(_HOSTS) for flag in _FLAGS},
    },
    "ddp": {
        "fusion_threshold_bytes": _ddp_bucket,
        "ddp_bucket_cap_mb": lambda setting: (f"bucket_cap_mb={setting['ddp_bucket_cap_mb']:g}",),
        "ddp_first_bucket_mb": _ddp_first,
        "ddp_gradient_as_bucket_view": lambda setting: (
            f"gradient_as_bucket_view={bool(setting['ddp_gradient_as_bucket_view'])}",
        ),
        "cycle_time_ms": _no(_DDP_BUCKETS),
        "cache_enabled": _no(_DDP_BUCKETS),
        "cache_capacity": _no(_DDP_BUCKETS),
        "chunk_bytes": _no(_DDP_BACKEND),
        "allreduce_algorithm": _no(_DDP_BACKEND),
        "channels": _no(_DDP_BACKEND),
        **{flag: _no(_DDP_BACKEND) for flag in _FLAGS},
    },
}


def _plain(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _yaml(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
