"""What `hvdtune run` asks of the search, as options of a study."""

from __future__ import annotations

from typing import Any

from hvdtune.cli.options import RunOptions
from hvdtune.cli.resolve import check_space, named_knobs
from hvdtune.core.config.knobs import Setting, load_knobs
from hvdtune.tuner.search.samplers import check_sampler, default_sampler
from hvdtune.tuner.space.objectives import check_objectives
from hvdtune.tuner.space.space_file import read_space


def search_options(options: RunOptions) -> dict[str, Any]:
    """Fields of TuneOptions. Raises UsageError for what cannot be."""
    objectives = check_objectives(options.objective or ["step_time"])
    sampler = options.sampler or default_sampler(len(objectives))
    check_sampler(sampler, len(objectives))
    tunable = named_knobs(options)
    ranges = {} if options.space is None else read_space(options.space, load_knobs())
    check_space(options, ranges, tunable or ())
    return {
        "tunable": tunable,
        "ranges": ranges,
        "objectives": objectives,
        "sampler": sampler,
        "step_budget": options.step_budget,
        "train_steps": options.train_steps,
    }


def searched(options: RunOptions, default: Setting) -> dict[str, Any]:
    """What a study in a live run searches, and for what, as run.json has it."""
    return {
        "default": dict(default),
        "knobs": options.knobs,
        "fix": sorted(options.fix or ()),
        "space": None if options.space is None else options.space.read_text(encoding="utf-8"),
        "objectives": options.objective or ["step_time"],
    }
