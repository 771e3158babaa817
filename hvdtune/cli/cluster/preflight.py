"""`hvdtune preflight`: the results of its checks as tables and sentences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hvdtune.cli.parameters import WholeNumber, command, json_option
from hvdtune.errors import UsageError
from hvdtune.plural import counted, sized

if TYPE_CHECKING:
    from hvdtune.launcher.preflight.facts import HostReport, PairReport, Problem
    from hvdtune.workflows.preflight import PreflightReport

# Maximum number of hosts for a matrix with figures; a larger one contains marks only.
_MOST_WITH_FIGURES: Final = 12
_STATES: Final = {"unreachable": "UNREACHABLE", "unauthenticated": "OTHER KEY", "unknown": "?"}


@command()
@click.option("--hosts", "-H", help="Hosts and slots, as in a:2,b:2.")
@click.option(
    "--hostfile", "-hostfile", type=Path, help="File with a line 'host slots=N' per host."
)
@click.option("--ssh-port", "-p", type=WholeNumber(1, 65535), help="Port of ssh on other hosts.")
@click.option("--ssh-identity-file", "-i", help="Private key for ssh to other hosts.")
@click.option(
    "--network-interface",
    "--network-interfaces",
    metavar="NAME",
    help="Network interface of the ranks' addresses. [default: the one towards the other hosts]",
)
@json_option
def preflight(
    *,
    hosts: str | None,
    hostfile: Path | None,
    ssh_port: int | None,
    ssh_identity_file: str | None,
    network_interface: str | None,
    as_json: bool,
) -> int:
    """Check the hosts of a job, and the connections between them.

    Each host is checked for name, ssh, versions, clock, shared memory, limits and processors. Each
    connection is checked for a rank's port, the job's key and its speed; with
    HVDTUNE_RENDEZVOUS_PORT, that port of the first host as well. Without -H and --hostfile, the
    hosts are those of the allocation of Slurm, PBS or LSF, else this one. The exit code is 1 if a
    job would fail there.

    \b
    hvdtune preflight -H node1:4,node2:4
    """
    from hvdtune.core.config.environment import inherited_environ, own_environ
    from hvdtune.core.config.interfaces import require_interface
    from hvdtune.core.config.key_source import users_key
    from hvdtune.core.config.meeting_point import chosen_port
    from hvdtune.launcher.hosts import parse_hosts, read_hostfile
    from hvdtune.workflows.preflight import PreflightRequest, preflight

    if hosts is not None and hostfile is not None:
        raise UsageError("give -H or --hostfile, not both")
    listed = read_hostfile(hostfile) if hostfile is not None else ()
    listed = parse_hosts(hosts) if hosts is not None else listed
    environ = own_environ()
    interface = network_interface or environ.get("HVDTUNE_INTERFACE", "")
    interface = (interface or environ.get("HOROVOD_GLOO_IFACE", "")).partition(",")[0].strip()
    if network_interface:
        require_interface(interface, "--network-interface")
    users_key(inherited_environ())  # refuses an invalid key, as the job would
    port = chosen_port(environ)
    report = preflight(PreflightRequest(listed, ssh_port, ssh_identity_file, interface, port))
    print(json.dumps(report.document()) if as_json else render(report))
    return int(not report.is_ready)


def render(report: PreflightReport) -> str:
    """Return the tables, the advice and the conclusion."""
    parts = [_hosts_table(report.hosts)]
    if report.pairs:
        parts.append(_matrix(report.hosts, report.pairs))
    if report.problems:
        parts.append("\n".join(["what to do", *map(_advice, report.problems)]))
    return "\n\n".join([*parts, _conclusion(report)])


def _conclusion(report: PreflightReport) -> str:
    fatal = sum(problem.severity == "fail" for problem in report.problems)
    warnings = len(report.problems) - fatal
    if fatal:
        return f"A job would fail here: {counted(fatal, 'problem')}."
    ranks = sum(host.slots for host in report.hosts)
    where = counted(sum(host.slots > 0 for host in report.hosts), "host")
    ready = f"Ready for {counted(ranks, 'rank')} on {where}"
    return f"{ready}, with {counted(warnings, 'warning')}." if warnings else f"{ready}."


def _advice(problem: Problem) -> str:
    mark = "FAIL" if problem.severity == "fail" else "warn"
    return f"  {mark}  {problem.sentence()}"


def _hosts_table(hosts: Sequence[HostReport]) -> str:
    titles = (
        "host", "address", "hvdtune", "Python", "clock (round trip)", "/dev/shm free",
        "open files", "locked memory", "processors",
    )  # fmt: skip
    return _table([titles, *map(_host_row, hosts)])


def _host_row(host: HostReport) -> tuple[str, ...]:
    if host.facts is None or host.failure is not None:
        check = host.failure.check if host.failure else "answer"
        return (host.name, f"FAILED: {check}")
    from hvdtune.core.rank.affinity import ranges

    facts = host.facts
    clock = "-"
    if host.clock_offset_ms is not None:
        clock = f"{host.clock_offset_ms:+.2f} ms ({host.clock_round_trip_ms:.2f})"
    shm = "none"
    if facts.shm_total_bytes >= 0:
        shm = f"{sized(facts.shm_free_bytes)} of {sized(facts.shm_total_bytes)}"
    use = f"{facts.usable} for {counted(host.slots, 'rank')}" if host.slots else "launcher only"
    return (
        host.name,
        host.address,
        host.version,
        facts.python,
        clock,
        shm,
        "unlimited" if facts.open_files is None else str(facts.open_files),
        "unlimited" if facts.locked_bytes is None else sized(facts.locked_bytes),
        f"{use} (cpu {ranges(facts.affinity)} of {facts.processors})",
    )


def _matrix(hosts: Sequence[HostReport], pairs: Sequence[PairReport]) -> str:
    by_names = {(pair.source, pair.target): pair for pair in pairs}
    names = [host.name for host in hosts]
    figures = len(hosts) <= _MOST_WITH_FIGURES
    first = ("from \\ to", *(names if figures else [str(n) for n in range(1, len(names) + 1)]))
    rows = [
        (
            source if figures else f"{number} {source}",
            *(_cell(by_names.get((source, target)), figures=figures) for target in names),
        )
        for number, source in enumerate(names, 1)
        if any(pair.source == source for pair in pairs)
    ]
    table = _table([first, *rows])
    measured = [pair for pair in pairs if pair.blocks]
    if all(pair.state == "unknown" for pair in pairs):
        return f"{table}\n?: not tried because one of the two hosts failed"
    legend = "MiB/s, microseconds per round trip: medians of "
    if figures and measured:
        blocks, trips = (
            _span([pair.blocks for pair in measured]),
            _span([pair.round_trips for pair in measured]),
        )
        legend += f"{blocks} blocks and {trips} round trips per connection"
    else:
        legend = (
            "+: reachable with the job's key; U: unreachable; O: a process with another key answers"
        )
    return f"{table}\n{legend}"


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _cell(pair: PairReport | None, *, figures: bool) -> str:
    if pair is None:
        return "-"
    if pair.state != "ok":
        return _STATES[pair.state] if figures else _STATES[pair.state][0]
    if not figures:
        return "+"
    return f"{pair.mib_per_s:,.0f}, {pair.round_trip_us:,.0f}" if pair.blocks else "BROKE"


def _table(rows: Sequence[Sequence[str]]) -> str:
    # The short row of a failed host does not widen the columns.
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[column]) for row in full) for column in range(len(rows[0]))]
    widths[0] = max(len(row[0]) for row in rows)
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)
