"""`hvdtune run` started by a scheduler once on each node: the options that all nodes must share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING
from typing import TYPE_CHECKING, Final

from hvdtune.cli.checks import is_elastic
from hvdtune.cli.messages import info
from hvdtune.cli.parameters import rows_of, spelling_of, values_of
from hvdtune.core.config.environment import launch_defaults
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.launcher.nodes.gathering import Nodes, gathered
from hvdtune.launcher.nodes.serving import serve
from hvdtune.launcher.nodes.slots import slots_of_node
from hvdtune.launcher.plan import build_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hvdtune.cli.options import RunOptions
    from hvdtune.core.config.meeting_point import MeetingPoint

# Each node may have its own.
_OF_ONE_NODE: Final = ("command", "slots_per_host", "network_interfaces", "workbench_python")


class NodeMeeting:
    """The meeting of the launchers, one on each node."""

    def __init__(
        self,
        point: MeetingPoint,
        asked: Mapping[str, str],
        variables: Mapping[str, str],
        ranks: int | None,
        slots: int | None,
    ) -> None:
        """Read what the meeting needs from the environment. Raises UsageError.

        Args:
            asked: the options that all nodes must share.
            variables: those of the ranks.
            ranks: those of all nodes, None for the default.
            slots: those of this node, None for its share of the ranks or its GPUs.
        """
        size, config = point.place.size or 1, launch_defaults(variables=variables)
        share = math.ceil(ranks / size) if ranks else slots_of_node()
        self._point, self._size, self._address = point, size, config.rendezvous.own_address
        self._slots, self._timeout_s = slots or share, config.timeouts.start_s
        self._asked = {**asked, "the number of nodes": str(size)}

    @property
    def is_first(self) -> bool:
        """Return whether this node runs the job."""
        return self._point.place.rank == 0

    def serve(self, command: Sequence[str]) -> int:
        """Serve the first node; return the exit code of the job.

        Args:
            command: the words of the command, which runs on this node, too.
        """
        terms = self._slots, self._timeout_s, self._asked
        return serve(self._point, self._address, *terms, build_command(command))

    @contextmanager
    def gathered(self) -> Iterator[Nodes]:
        """Gather all nodes while the block runs. An HvdtuneError gives them its exit code."""
        terms = self._slots, self._timeout_s, self._asked
        with gathered(self._point, self._address, *terms) as nodes:
            hosts = ",".join(f"{host.name}:{host.slots}" for host in nodes.hosts)
            info(f"{self._point.place.title} started hvdtune on {self._size} nodes: {hosts}")
            try:
                yield nodes
            except HvdtuneError as error:
                nodes.exit_code = error.exit_code
                raise


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
