"""Which figure of a run has which name; pages make room for them by name."""

from collections.abc import Callable, Mapping

import plotly.graph_objects as go

from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.figures.breakdown import breakdown_figure, busy_times_figure
from hvdtune.dashboard.figures.buckets import bucket_sizes_figure, cycles_figure
from hvdtune.dashboard.figures.membership import membership_figure, resets_figure
from hvdtune.dashboard.figures.ranks import lateness_figure, waits_figure
from hvdtune.dashboard.figures.search import incumbent_figure, knobs_figure
from hvdtune.dashboard.figures.theme import Theme, empty_figure
from hvdtune.dashboard.figures.trials import trials_figure
from hvdtune.dashboard.figures.verification import verification_figure
from hvdtune.dashboard.membership import PHASES
from hvdtune.timeline.analysis.metrics import stragglers


def _busy_times(run: RunView, theme: Theme) -> go.Figure:
    return busy_times_figure(stragglers.busy_times(run.steps), theme)


def _lateness(run: RunView, theme: Theme) -> go.Figure:
    return lateness_figure(stragglers.busy_times(run.steps), run.job.hosts, theme)


def _bucket_sizes(run: RunView, theme: Theme) -> go.Figure:
    return bucket_sizes_figure(run.trace.events, _knob(run, "fusion_threshold_bytes"), theme)


def _cycles(run: RunView, theme: Theme) -> go.Figure:
    return cycles_figure(run.trace.events, _knob(run, "cycle_time_ms"), theme)


def _trials(run: RunView, theme: Theme) -> go.Figure:
    if run.study is None:
        return empty_figure(theme, 340)
    study = run.study
    return trials_figure(study.trials, study.noise_floor_percent, theme, study.floor_basis)


def _verification(run: RunView, theme: Theme) -> go.Figure:
    if run.study is None:
        return empty_figure(theme, 320)
    verdict = run.study.verdict
    interval, scope = (None, "") if verdict is None else (verdict.interval_percent, verdict.scope)
    return verification_figure(run.study.verification, interval, theme, scope)


def _incumbent(run: RunView, theme: Theme) -> go.Figure:
    return (
        empty_figure(theme, 280) if run.study is None else incumbent_figure(run.study.trials, theme)
    )


def _membership(run: RunView, theme: Theme) -> go.Figure:
    if run.membership is None:
        return empty_figure(theme, 320)
    return membership_figure(run.membership.stays, run.membership.resets, theme)


def _resets(run: RunView, theme: Theme) -> go.Figure:
    if run.membership is None:
        return empty_figure(theme, 300)
    return resets_figure(run.membership.resets, PHASES, theme)


def _of_knobs(name: str) -> Callable[[RunView, Theme], go.Figure]:
    def draw(run: RunView, theme: Theme) -> go.Figure:
        if run.study is None:
            return empty_figure(theme, 320)
        return knobs_figure(name, run.study.trials, theme)

    return draw


def _knob(run: RunView, name: str) -> float | None:
    value = run.job.setting.get(name)
    return float(value) if isinstance(value, int | float) else None


FIGURES: Mapping[str, Callable[[RunView, Theme], go.Figure]] = {
    "breakdown": lambda run, theme: breakdown_figure(run.steps, theme),
    "busy_times": _busy_times,
    "lateness": _lateness,
    "waits": lambda run, theme: waits_figure(
        stragglers.waits_for(run.trace, run.steps), run.job.hosts, theme
    ),
    "bucket_sizes": _bucket_sizes,
    "cycles": _cycles,
    "trials": _trials,
    "verification": _verification,
    "incumbent": _incumbent,
    "membership": _membership,
    "resets": _resets,
} | {name: _of_knobs(name) for name in ("importances", "slice", "contour", "parallel")}
