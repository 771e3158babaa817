"""`hvdtune run` started by a scheduler once on each node: the options that all nodes must share."""

from __future__ import annotations

import math
import shlex
from dataclasses import MISSING
from typing import TYPE_CHECKING, Final

from hvdtune.cli.checks import is_elastic
from hvdtune.cli.parameters import rows_of, spelling_of, values_of
from hvdtune.core.config.environment import launch_defaults
from hvdtune.errors import UsageError
from hvdtune.launcher.nodes.control import NodeTerms
from hvdtune.launcher.nodes.slots import slots_of_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hvdtune.cli.options import RunOptions
    from hvdtune.core.config.meeting_point import MeetingPoint

# Each node may have its own.
_OF_ONE_NODE: Final = ("command", "slots_per_host", "network_interfaces", "workbench_python")


def node_terms(
    point: MeetingPoint,
    asked: Mapping[str, str],
    variables: Mapping[str, str],
    ranks: int | None,
    slots: int | None,
) -> NodeTerms:
    """Return the terms of this node. Raises UsageError for an invalid environment.

    Args:
        asked: the options that all nodes must share.
        variables: those of the ranks.
        ranks: those of all nodes, None for the default.
        slots: those of this node, None for its share of the ranks or its GPUs.
    """
    size, config = point.place.size or 1, launch_defaults(variables=variables)
    slots = slots or (math.ceil(ranks / size) if ranks else slots_of_node())
    shared = {**asked, "the number of nodes": str(size)}
    return NodeTerms(point, config.rendezvous.own_address, slots, config.timeouts.start_s, shared)


def asked_alike(options: RunOptions, command: str) -> dict[str, str]:
    """Return the options that all nodes must share, if they differ from their defaults.

    Args:
        command: hvdtune's command with these options.

    Raises UsageError for jobs that one launcher starts alone.
    """
    if options.mpi.mpi:
        raise UsageError("--mpi: start `hvdtune run --mpi` once, not on every node")
    if is_elastic(options):
        raise UsageError("--min-np: start an elastic `hvdtune run` once, not on every node")
    asked = {"hvdtune": command, "the command": shlex.join(options.command)}
    values = values_of(options)
    for name, row in rows_of(options).items():
        if name not in _OF_ONE_NODE and row.default not in (MISSING, values[name]):
            value = values[name]
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            asked[spelling_of(row)] = "" if value is True else text
    return asked
