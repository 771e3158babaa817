"""`hvdtune run --mpi`: mpirun takes this process's place."""

from __future__ import annotations

import os
from typing import Final, NoReturn

from hvdtune.cli.messages import tell
from hvdtune.cli.options import RunOptions
from hvdtune.cli.resolve import chosen_hosts, place_ranks, rank_variables
from hvdtune.core.config.environment import launch_defaults, worker_environ
from hvdtune.core.config.knobs import Setting
from hvdtune.core.mpi.mpi_library import choose_plugin
from hvdtune.errors import LaunchError, UsageError
from hvdtune.launch.hosts import is_local
from hvdtune.launch.mpirun import MpiJob, exportable, find_mpirun, mpirun_command
from hvdtune.launch.plan import build_command
from hvdtune.launch.run import setting_environ

_OF_THE_LAUNCHER: Final = {
    "trials": "--trials",
    "autotune": "--autotune",
    "as_json": "--json",
    "timeline_filename": "--timeline-filename",
    "output_dir": "--output-dir",
    # Open MPI has an option of this name that means other files in each of its versions.
    "output_filename": "--output-filename",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
}


def run_by_mpi(options: RunOptions, setting: Setting) -> NoReturn:
    """Becomes mpirun, whose exit code is the job's.

    Raises UsageError for what cannot be under MPI, LaunchError when mpirun cannot be started.
    """
    for name, option in _OF_THE_LAUNCHER.items():
        if getattr(options, name):
            raise UsageError(f"{option} needs hvdtune's own launcher: leave out --mpi")
    variables = rank_variables(options) | setting_environ(setting) | {"HVDTUNE_CONTROLLER": "mpi"}
    launch_defaults(variables=variables)
    hosts = chosen_hosts(options)
    environ = worker_environ(variables | {"PYTHONUNBUFFERED": "1"})
    far = not all(is_local(host.name) for host in hosts)
    mpirun, flavour = find_mpirun()
    if choose_plugin(flavour) is None:
        raise UsageError("--mpi: hvdtune has no plugin for this MPI: run `hvdtune build mpi` once")
    job = MpiJob(
        command=build_command(options.command),
        hosts=hosts,
        processes=len(place_ranks(options, hosts)),
        arguments=options.mpi_args or "",
        binding=options.binding_args or "",
        tcp=options.tcp,
        ssh_port=options.ssh_port,
        ssh_identity_file=options.ssh_identity_file,
        exported=exportable([*environ]) if far else (),
        # Within a host mpirun needs none, and Open MPI refuses loopback.
        interface=variables.get("HVDTUNE_INTERFACE", "") if far else "",
        as_root=os.geteuid() == 0,
    )
    command = mpirun_command(mpirun, flavour, job)
    if options.verbose:
        tell(" ".join(command))
    try:
        os.execve(command[0], command, environ)
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from None
