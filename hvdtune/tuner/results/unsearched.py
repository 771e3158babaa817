"""Knobs of a job and its framework that a study did not search. Pure."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from hvdtune.core.config.knobs import Knob
from hvdtune.core.config.script_knobs import is_of_script
from hvdtune.timeline.model.schema import DDP_BUCKET

_TRIALS: Final = "hvdtune run --trials 40"
# Operations of FSDP2, which are called after its modules; those without a name have a number.
_OF_FSDP2: Final = re.compile(r"(allgather|reducescatter)\.(?!torch\.|noname\.)(.+)")
_OF_DDP: Final = (
    "the buckets of DistributedDataParallel, which need restarts "
    f"(`{_TRIALS} --knobs live,ddp_bucket_cap_mb`)"
)
_BY_RESTARTS: Final = (
    "knobs that need restarts, such as omp_num_threads "
    f"(`{_TRIALS} --mode restart --knobs omp_num_threads`)"
)
_OF_SCRIPT: Final = "(declare them with hvd.knob, docs/script-knobs.md)"


_MOST_NAMED: Final = 6


def left_by_restarting(searched: Sequence[str], knobs: Sequence[Knob]) -> str:
    """Name the knobs that a study by restarting did not search; "" if it searched all.

    Args:
        searched: names of the knobs that it did.
        knobs: those that it can set. In a live run they have been searched, if they can be there.
    """
    left = [knob.name for knob in knobs if knob.scope != "live" and knob.name not in searched]
    if not left:
        return ""
    more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
    named = f"{', '.join(left[:_MOST_NAMED])}{more}"
    return f"Searched: {', '.join(searched)}. Not searched: {named} (name them in --knobs)."


def left_in_live_run(searched: Sequence[str], operations: Collection[str]) -> str:
    """Name the knobs that a study in a live run did not search, with the command that does.

    Args:
        searched: names of the knobs that it did.
        operations: names of the operations of a step, from which the framework is known.
    """
    parts = [*_of_framework(operations), _BY_RESTARTS]
    if not any(map(is_of_script, searched)):
        parts.append(f"choices of the script {_OF_SCRIPT}")
    return f"Searched: {', '.join(searched)}. Not searched: {'; '.join(parts)}."


def _of_framework(operations: Collection[str]) -> list[str]:
    if any(map(DDP_BUCKET.match, operations)):
        return [_OF_DDP]
    found: dict[str, set[str]] = {"allgather": set(), "reducescatter": set()}
    for operation in operations:
        if sent := _OF_FSDP2.fullmatch(operation):
            found[sent[1]].add(sent[2])
    if found["allgather"] & found["reducescatter"]:
        return [f"arguments of FSDP2's fully_shard {_OF_SCRIPT}"]
    return []
