"""`hvdtune.run`: a function on the ranks of a job, its results in the caller."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from hvdtune import __version__
from hvdtune.core.config.environment import launcher_values, worker_environ
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import ArgumentError, FunctionError, UsageError
from hvdtune.launcher.call import read_outcome, write_call
from hvdtune.launcher.hosts import parse_hosts, read_hostfile, this_host
from hvdtune.launcher.jobs import check_variables, rank_options, reached
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import Slot, plan_slots
from hvdtune.launcher.rank_files import rank_files
from hvdtune.launcher.run import ExitReport, Job, JobOptions, JobPlan
from hvdtune.launcher.spawn import sealed_file

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
        verbose: tell the process id of each rank.
        network_interfaces: names of interfaces; the first is the one that ranks listen on.
        executable: the Python of the ranks, this one by default.
        env: variables for the ranks, on top of this process's environment.

    Raises:
        FunctionError: it raised on a rank, which the error names with the traceback (its cause is
            what was raised, where that can be pickled); its result cannot be pickled; or a rank
            ended without returning.
        UsageError: the arguments cannot be, cannot be pickled, or ask for MPI.
        LaunchError: a process could not be started, or no way leads to a host.
        NotImplementedError: one of the arguments of elastic jobs was given.
    """
    elastic = {
        "min_num_proc": min_num_proc, "max_num_proc": max_num_proc, "slots": slots,
        "reset_limit": reset_limit, "cooldown_range": cooldown_range,
        "host_discovery_script": host_discovery_script, "min_np": min_np, "max_np": max_np,
    }  # fmt: skip
    _refuse_elastic(elastic)
    _refuse_mpi(use_mpi, mpi_args)
    if not callable(func):
        raise UsageError(f"hvdtune.run calls a function, which {func!r} is not")
    places = _places(num_proc if np is None else np, hosts, hostfile)
    check_variables(env)
    variables = dict(env or {}) | _interface(network_interfaces or network_interface)
    with contextlib.ExitStack() as files:
        call = _pickled(func, args, kwargs or {})
        function = files.enter_context(sealed_file("hvdtune-function", call))
        results = [files.enter_context(_result_file()) for _ in places]
        command = (executable or sys.executable, "-m", "hvdtune.launcher.call")
        descriptors = (function, *results)
        title = getattr(func, "__name__", "the function")
        plan = JobPlan((*command, *map(str, descriptors)), places, title, descriptors)
        plan = reached(plan, ssh_port, ssh_identity_file)
        writers: list[Writer] = [_write_here]
        if output_filename is not None:
            folder = Path(output_filename)
            writers.append(files.enter_context(rank_files(folder, len(places))))
        options = _options(places, variables, start_timeout)
        try:
            with (
                stop_signals([signal.SIGINT]),
                Job.start(plan, {}, options, writers=writers) as job,
            ):
                if verbose:
                    _tell_ranks(job, places)
                report = job.wait()
        except Stopped as stop:
            # Python ends by the signal, as shells expect, for this very class only.
            raise KeyboardInterrupt(str(stop)) from None
        return _settle(report, results, title)


def _tell_ranks(job: Job, places: Sequence[Slot]) -> None:
    for slot, pid in zip(places, job.pids, strict=True):
        print(f"hvdtune: rank {slot.rank} on {slot.host}: pid {pid}", file=sys.stderr)


def _refuse_elastic(arguments: Mapping[str, object]) -> None:
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        raise NotImplementedError(
            f"hvdtune.run({given[0]}=...): hvdtune {__version__} has no elastic jobs; leave it out "
            "for a job of num_proc ranks"
        )


def _refuse_mpi(use_mpi: bool | None, mpi_args: str | None) -> None:
    if use_mpi or mpi_args:
        raise UsageError(
            f"hvdtune.run({'use_mpi' if use_mpi else 'mpi_args'}=...) does not start mpirun: start "
            "a script that calls the function with `mpirun -np 2 python train.py`, or leave it out"
        )


def _pickled(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    try:
        return write_call(sys.path, func, tuple(args), dict(kwargs))
    except Exception as error:
        raise UsageError(
            f"hvdtune.run: the function or its arguments cannot be pickled: {error}"
        ) from error


def _places(num_proc: int, hosts: str | None, hostfile: str | Path | None) -> tuple[Slot, ...]:
    if hosts is not None and hostfile is not None:
        raise UsageError("hvdtune.run: give hosts= or hostfile=, not both")
    try:
        if hosts is not None:
            listed = parse_hosts(hosts)
        elif hostfile is not None:
            listed = read_hostfile(Path(hostfile))
        else:
            listed = this_host(num_proc)
        return plan_slots(listed, num_proc)
    except ArgumentError as error:
        raise UsageError(f"hvdtune.run: {error.words({'ranks': 'num_proc'})}") from None


def _interface(names: str | Sequence[str] | None) -> dict[str, str]:
    listed = names.split(",") if isinstance(names, str) else list(names or ())
    return {"HVDTUNE_INTERFACE": listed[0]} if listed else {}


def _options(
    slots: Sequence[Slot], variables: Mapping[str, str], start_timeout: float | None
) -> JobOptions:
    if start_timeout is not None and start_timeout <= 0:
        raise UsageError(f"hvdtune.run: start_timeout={start_timeout} is not a time in seconds")
    asked = launcher_values(worker_environ(variables))
    for name, instead in _OF_THE_COMMAND.items():
        if asked.get(name):
            raise UsageError(f"{name} is set, but the job of a function ignores it: {instead}")
    timeout = {} if start_timeout is None else {"HVDTUNE_START_TIMEOUT_S": str(start_timeout)}
    return rank_options(slots, {**variables, **timeout})


@contextlib.contextmanager
def _result_file() -> Iterator[int]:
    fd = os.memfd_create("hvdtune-result", os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_here(stream: str, text: bytes) -> None:
    # Looked up at every call, as print() does: a notebook has one for each cell, without bytes.
    file: Any = sys.stdout if stream == "stdout" else sys.stderr
    with contextlib.suppress(ValueError):  # closed by the caller, who then does not read it
        file.flush()
        if hasattr(file, "buffer"):
            file.buffer.write(text)
        else:
            file.write(text.decode(errors="replace"))
        file.flush()


def _settle(report: ExitReport, results: Sequence[int], title: str) -> list[Any]:
    if report.returncode:
        outcome = _outcome(report.rank, results[report.rank])
        if outcome is not None and outcome[0] == "raised":
            _raise_again(report.rank, outcome)
        raise FunctionError(f"{title} did not return on all ranks: {report.reason}", report.rank)
    values = []
    for rank, result in enumerate(results):
        outcome = _outcome(rank, result)
        if outcome is None:
            raise FunctionError(f"rank {rank} ended before {title} returned", rank)
        values.append(outcome[1])
    return values


def _outcome(rank: int, result: int) -> tuple[Any, ...] | None:
    try:
        return read_outcome(result)
    except Exception as error:
        raise FunctionError(
            f"rank {rank}: its result cannot be unpickled here: {error}", rank
        ) from error


def _raise_again(rank: int, outcome: tuple[Any, ...]) -> NoReturn:
    _, summary, trace, pickled = outcome
    message = f"rank {rank}: {summary}"
    cause = None
    if pickled is not None:
        # A class whose constructor takes other arguments cannot be made again; its text can.
        with contextlib.suppress(Exception):
            cause = pickle.loads(pickled)
    raise FunctionError(f"{message}\n\n{trace.rstrip()}" if trace else message, rank) from cause
