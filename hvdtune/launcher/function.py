"""`hvdtune.run`: a function on the ranks of a job, its results in the caller."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import launch_defaults, launcher_values, worker_environ
from hvdtune.errors import UsageError
from hvdtune.launcher.call import (
    FunctionCall,
    interruptible,
    outcome_of,
    result_file,
    settle,
    write_call,
    write_here,
)
from hvdtune.launcher.elastic.function import CallLimits, naming_arguments, run_elastic
from hvdtune.launcher.hosts import Host, parse_hosts, read_hostfile, this_host
from hvdtune.launcher.job import Job
from hvdtune.launcher.jobs import check_variables, rank_options, reached
from hvdtune.launcher.mpirun import MpiJob, mpi_files, mpi_start, run_mpirun
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import Slot, plan_slots
from hvdtune.launcher.rank_files import rank_files
from hvdtune.launcher.ranks import JobOptions, JobPlan, start_ranks
from hvdtune.launcher.spawn import sealed_file
from hvdtune.streams import open_missing_streams

_OF_THE_COMMAND: Final = {
    "HOROVOD_TIMELINE": "call hvd.start_timeline() in the function",
    "HOROVOD_AUTOTUNE": "use `hvdtune run --autotune` or `--trials` on a script",
}


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | Path | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | Path | None = None,
    verbose: int | bool | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | Sequence[str] | None = None,
    network_interfaces: str | Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Calls `func(*args, **kwargs)` on every rank of a new job and returns the results by rank.

    The function, its arguments and its results travel by cloudpickle through memory that only
    the caller and the ranks have, so lambdas and functions of a notebook will do. It need not
    call `init`. What the ranks print appears here, each line with its rank. Ctrl-C ends them all.

    Args:
        num_proc: how many ranks; `np` is its old name.
        hosts: where, as "127.0.0.1:2,127.0.0.2:2"; `hostfile` is a file of "name slots=N" lines.
            By default they are on this host. Other hosts are reached by ssh, which is told
            `ssh_port` and `ssh_identity_file`; `disable_cache` has no effect.
        start_timeout: seconds that the ranks have to find each other in `init`, 30 by default.
        output_filename: a folder in which each rank's output is kept as well, as
            rank.N/stdout and rank.N/stderr.
        verbose: print the process id of each rank, in a job of fixed size.
        min_num_proc, max_num_proc: the minimum and maximum number of ranks of an elastic job
            (docs/elastic.md); `min_np` and `max_np` are their old names. The function then uses
            `hvd.elastic.run`. The results are those of the ranks at the end.
        host_discovery_script: a command that prints the hosts of an elastic job.
        slots: ranks on a discovered host without a number.
        reset_limit: maximum number of times that an elastic job's ranks may change.
        cooldown_range: the first and the longest time in seconds after which a slot in which a
            rank has failed is used again.
        use_mpi: start the ranks with mpirun, given `mpi_args`. Needs `hvdtune build mpi`. Other
            hosts must share this user's home.
        network_interfaces: names of interfaces; the first is the one that ranks listen on.
        executable: the Python of the ranks, this one by default.
        env: variables for the ranks, on top of this process's environment.

    Raises:
        FunctionError: it raised on a rank, which the error names with the traceback (its cause is
            what was raised, where that can be pickled); its result cannot be pickled; or a rank
            ended without returning.
        UsageError: the arguments cannot be, or cannot be pickled.
        LaunchError: a process could not be started, or no way leads to a host.
    """
    if not callable(func):
        raise UsageError(f"hvdtune.run needs a function to call, not {func!r}")
    check_variables(env)
    open_missing_streams()  # before there are files that the ranks inherit
    listed = _listed(hosts, hostfile)
    limits = CallLimits(
        ranks=num_proc if np is None else np,
        least=min_num_proc if min_np is None else min_np,
        most=max_num_proc if max_np is None else max_np,
        slots=slots or 1,
        reset_limit=reset_limit,
        cooldown=cooldown_range,
        script=host_discovery_script,
    )
    function = FunctionCall(
        content=_pickled(func, args, kwargs or {}),
        title=getattr(func, "__name__", "the function"),
        python=executable or sys.executable,
        variables=dict(env or {}) | _interface(network_interfaces or network_interface),
        folder=None if output_filename is None else Path(output_filename),
        login=(ssh_port, ssh_identity_file),
        start_timeout_s=start_timeout,
    )
    if limits.is_elastic:
        if use_mpi:
            raise UsageError("hvdtune.run: leave out use_mpi=, which elastic jobs do not support")
        return run_elastic(function, limits, listed, _options)
    limits.require_fixed()
    if use_mpi:
        return _run_by_mpi(function, limits.ranks, listed, mpi_args or "")
    if mpi_args:
        raise UsageError("hvdtune.run: mpi_args= needs use_mpi=True")
    return _run_fixed(function, _places(limits.ranks, listed), is_verbose=bool(verbose))


def _run_fixed(call: FunctionCall, places: tuple[Slot, ...], *, is_verbose: bool) -> list[Any]:
    with contextlib.ExitStack() as files:
        function = files.enter_context(sealed_file("hvdtune-function", call.content))
        results = [files.enter_context(result_file()) for _ in places]
        plan = JobPlan(call.command, places, call.title, lambda rank: (function, results[rank]))
        plan = reached(plan, *call.login)
        writers: list[Writer] = [write_here]
        if call.folder is not None:
            writers.append(files.enter_context(rank_files(call.folder, len(places))))
        options = _options(call, places)
        with interruptible(), start_ranks(plan, {}, options, writers=writers) as job:
            if is_verbose:
                _tell_ranks(job, places)
            report = job.wait()
        by_rank = {rank: str(result) for rank, result in enumerate(results)}
        return settle(report.returncode, report.reason, report.rank, by_rank, call.title, "rank")


def _run_by_mpi(
    call: FunctionCall, ranks: int, listed: tuple[Host, ...] | None, mpi_args: str
) -> list[Any]:
    places = _places(ranks, listed)
    if call.folder is not None:
        raise UsageError("hvdtune.run: output_filename= needs hvdtune's own launcher, not use_mpi=")
    options = _options(call, places, may_be_mpi=True)
    hosts = this_host(ranks) if listed is None else listed
    with mpi_files(call.content, len(places), hosts) as (function, results):
        job = MpiJob(
            command=(*call.command, str(function), *map(str, results)),
            hosts=hosts,
            processes=len(places),
            arguments=mpi_args,
            ssh_port=call.login[0],
            ssh_identity_file=call.login[1],
        )
        command, environ = mpi_start(job, options.environ)
        with interruptible():
            code = run_mpirun(command, environ, write_here)
        by_rank = {rank: str(result) for rank, result in enumerate(results)}
        # mpirun does not name the rank that failed first. One that has raised explains most.
        outcomes = {rank: outcome_of(rank, result) for rank, result in by_rank.items()}
        raised = (rank for rank, found in outcomes.items() if found and found[0] == "raised")
        failed = next(raised, next((rank for rank in outcomes if not outcomes[rank]), 0))
        reason = f"mpirun exited with code {code}"
        return settle(code, reason, failed, by_rank, call.title, "rank")


def _tell_ranks(job: Job, places: Sequence[Slot]) -> None:
    for slot, pid in zip(places, job.pids, strict=True):
        print(f"hvdtune: rank {slot.rank} on {slot.host}: pid {pid}", file=sys.stderr)


def _pickled(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    try:
        return write_call(sys.path, func, tuple(args), dict(kwargs))
    except Exception as error:
        from hvdtune.core.rank.objects import unpicklable

        what = {"func": func, "args": tuple(args), "kwargs": dict(kwargs)}
        raise UsageError(
            "hvdtune.run: the function or its arguments cannot be pickled: "
            f"{unpicklable(what, '', error)}"
        ) from error


def _listed(hosts: str | None, hostfile: str | Path | None) -> tuple[Host, ...] | None:
    """The hosts that were given, None for none."""
    if hosts is not None and hostfile is not None:
        raise UsageError("hvdtune.run: give hosts= or hostfile=, not both")
    with naming_arguments():
        if hosts is not None:
            return parse_hosts(hosts)
        return None if hostfile is None else read_hostfile(Path(hostfile))


def _places(num_proc: int, listed: tuple[Host, ...] | None) -> tuple[Slot, ...]:
    with naming_arguments():
        return plan_slots(this_host(num_proc) if listed is None else listed, num_proc)


def _interface(names: str | Sequence[str] | None) -> dict[str, str]:
    listed = names.split(",") if isinstance(names, str) else list(names or ())
    return {"HVDTUNE_INTERFACE": listed[0]} if listed else {}


def _options(call: FunctionCall, slots: Sequence[Slot], *, may_be_mpi: bool = False) -> JobOptions:
    timeout_s, variables = call.start_timeout_s, call.variables
    if timeout_s is not None and timeout_s <= 0:
        raise UsageError(f"hvdtune.run: start_timeout={timeout_s} is not a time in seconds")
    asked = launcher_values(worker_environ(variables))
    for name, instead in _OF_THE_COMMAND.items():
        if asked.get(name):
            raise UsageError(f"{name} is set, but the job of a function ignores it: {instead}")
    timeout = {} if timeout_s is None else {"HVDTUNE_START_TIMEOUT_S": str(timeout_s)}
    if may_be_mpi:
        launch_defaults(variables={**variables, **timeout})
        return JobOptions(environ={**variables, **timeout})
    return rank_options(slots, {**variables, **timeout})
