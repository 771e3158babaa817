"""`hvdtune verify --mode restart` and `hvdtune aa --mode restart`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hvdtune.cli.messages import complain, tell
from hvdtune.cli.resolve import settle
from hvdtune.cli.verify_options import AaOptions, CompareOptions
from hvdtune.core.config.knobs import Value
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.tuner.comparison import compare, measure_noise_floor
from hvdtune.tuner.results.profile import read_setting_file
from hvdtune.tuner.results.study_report import verdict_document
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.space.tune_options import TuneOptions, by_restarting
from hvdtune.workflows.restart_plan import prepare
from hvdtune.workflows.restart_study import launch_s, opened, say

# Without --time-budget the verification takes what it needs.
_NO_LIMIT_S: Final = 1e9


def compare_by_restarting(options: CompareOptions, a: Path | None, b: Path | None) -> int:
    """Compares B with A (None: as the command is by itself), without B A with itself.

    Returns the exit code of the verdict or the floor.
    """
    options = settle(replace(options, mode="restart", autotune=False))
    with stop_signals():
        try:
            return _compare(options, a, b)
        except Stopped as stop:
            complain(str(stop))
            return stop.exit_code


def _compare(options: CompareOptions, a: Path | None, b: Path | None) -> int:
    prepared = prepare(options, settings=[path for path in (a, b) if path is not None])
    knobs = prepared.target.knobs

    def setting(path: Path | None) -> dict[str, Value]:
        named = {} if path is None else read_setting_file(path, knobs)
        return prepared.reference | named

    one, other = setting(a), setting(b)
    identity = _identity(options, [one] if b is None else [one, other])
    chosen = _tune_options(options)
    with opened(options, replace(prepared, reference=one), identity) as (study, folder, show):
        if b is None:
            floor = measure_noise_floor(study, folder.path, chosen, show)
            say(options, folder, floor.text, floor.document())
            return floor.exit_code
        tell(f"B differs from A in {describe(other, one)}" if other != one else "B is A")
        verdict = compare(study, other, folder.path, chosen, show)
    say(options, folder, f"verdict: {verdict.text}", verdict_document(verdict))
    return verdict.exit_code


def _identity(options: CompareOptions, settings: list[dict[str, Value]]) -> Mapping[str, Any]:
    return {
        "mode": "restart",
        "adapter": options.adapter or "hvdtune",
        "compare": settings,
        "metric": options.metric_regex,
        "launch_time": options.launch_time,
    }


def _tune_options(options: CompareOptions) -> TuneOptions:
    chosen = by_restarting(
        0,
        time_budget_s=options.time_budget or _NO_LIMIT_S,
        block_s=launch_s(options),
        seed=options.seed,
    )
    pairs = options.pairs or chosen.min_verify_pairs
    # What a floor is measured with is no limit of the verification that it tells of.
    most = None if isinstance(options, AaOptions) else options.pairs
    return replace(
        chosen,
        min_verify_pairs=pairs,
        max_verify_pairs=most or chosen.max_verify_pairs,
        verify_launches=pairs // 2,
    )
