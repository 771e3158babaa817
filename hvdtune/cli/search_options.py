"""What `hvdtune run` asks of the search, as options of a study."""

from __future__ import annotations

from typing import Any

from hvdtune.cli.options import RunOptions
from hvdtune.core.knobs import load_knobs
from hvdtune.tuner.objectives import check_objectives
from hvdtune.tuner.samplers import check_sampler
from hvdtune.tuner.space_file import read_space


def search_options(options: RunOptions) -> dict[str, Any]:
    """Fields of TuneOptions. Raises UsageError for what cannot be."""
    objectives = check_objectives(options.objective or ["step_time"])
    sampler = options.sampler or "tpe"
    check_sampler(sampler, len(objectives))
    return {
        "ranges": {} if options.space is None else read_space(options.space, load_knobs()),
        "objectives": objectives,
        "sampler": sampler,
        "step_budget": options.step_budget,
        "train_steps": options.train_steps,
    }
