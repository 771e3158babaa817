"""Number of ranks of a host if the user did not set it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hvdtune.core.config.dialect import whole_of
from hvdtune.core.config.dialects import recognise
from hvdtune.core.config.environment import own_environ
from hvdtune.core.rank.affinity import usable_processors
from hvdtune.core.toolchain import nccl
from hvdtune.errors import UsageError

_PROCESSES: Final = "PET_NPROC_PER_NODE"  # the option of torchrun
_GPUS: Final = ("SLURM_GPUS_ON_NODE", "SM_NUM_GPUS")


def slots_of_node(environ: Mapping[str, str] | None = None) -> int:
    """Return the number of GPUs or processes that the scheduler gave this host; else 1.

    Raises UsageError for a number of processes that torchrun would refuse, too.
    """
    env = own_environ(environ)
    if env.get(_PROCESSES):
        return _as_torchrun_counts(env)
    given = (env.get(name, "") for name in _GPUS)
    return next((int(text) for text in given if text.isdigit() and int(text) > 0), 1)


def slots_of_lone_node(environ: Mapping[str, str] | None = None) -> int | None:
    """Return `slots_of_node` if a platform started this process on the only host of a job.

    None otherwise. Raises UsageError as `slots_of_node` does.
    """
    env = own_environ(environ)
    place = recognise(env, forming=True)
    is_lone = place is not None and place.is_node and place.size == 1
    return slots_of_node(env) if is_lone else None


def visible_gpus(env: Mapping[str, str]) -> int:
    """Return the number of GPUs that CUDA's driver shows to this process; 0 without a driver."""
    return len(nccl.report(env.get("HVDTUNE_CUDA_LIBRARY", ""), "").get("gpus", ()))


def _as_torchrun_counts(env: Mapping[str, str]) -> int:
    """Return the number for a number, `cpu`, `gpu`, or `auto` (GPUs, else processors)."""
    asked = env[_PROCESSES]
    if asked == "cpu":
        return usable_processors()
    if asked in ("auto", "gpu"):
        gpus = visible_gpus(env)
        if asked == "gpu" and not gpus:
            raise UsageError(f"{_PROCESSES}=gpu, but CUDA's driver finds no GPU on this host.")
        return gpus or usable_processors()
    if not asked.isdigit() or not (count := whole_of(env, _PROCESSES)):
        raise UsageError(
            f"{_PROCESSES}={asked} is invalid. Set a number of processes (1 or more), auto, cpu or "
            "gpu."
        )
    return count
