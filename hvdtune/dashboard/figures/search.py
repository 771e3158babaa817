"""What a search has read: the best so far, and how knobs bear on the gain (Optuna's own plots)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, plain

if TYPE_CHECKING:
    import optuna

FEWEST_TRIALS = 4
_LOG_RATIO = 50.0  # of a knob's largest value to its smallest


def incumbent_figure(trials: pd.DataFrame, theme: Theme) -> go.Figure:
    """The best reading so far over the steps that trials have taken; the default's is 0.

    Of each trial two standard errors less count: one noisy reading would stay the best for ever.

    Args:
        trials: columns trial, state, gain_percent, spread_percent, steps (measured until the trial
            ended).
    """
    known = trials[(trials["state"] == "complete") & trials["spread_percent"].notna()]
    known = known.sort_values("steps", kind="stable")  # a trial may be taken up again
    best = (known["gain_percent"] - known["spread_percent"]).clip(lower=0.0).cummax()
    figure = empty_figure(theme, 280)
    figure.add_trace(
        go.Scatter(
            mode="lines+markers",
            x=known["steps"].to_numpy(),
            y=best.to_numpy(),
            line={"shape": "hv", "color": theme.accent},
            marker={"size": 5},
            cliponaxis=False,
            customdata=known["trial"].to_numpy(),
            hovertemplate="trial %{customdata}, %{x:,} steps: %{y:.2f} % or more<extra></extra>",
        )
    )
    if len(known) and not best.max():
        figure.add_annotation(
            x=0.5, xref="paper", y=0.5, yref="paper", showarrow=False,
            text="No trial was faster than the default by more than two standard errors.",
            font={"color": theme.muted},
        )  # fmt: skip
        figure.update_yaxes(tickvals=[0])
    figure.update_xaxes(title="steps measured", rangemode="tozero")
    figure.update_yaxes(title="best measured gain minus 2 s.e. (%)", rangemode="tozero")
    return figure


def knobs_figures() -> Mapping[str, Callable[["optuna.Study"], go.Figure]]:
    """Plots of a study in memory, see `study_of`."""
    from optuna import visualization
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    def importances(study: "optuna.Study") -> go.Figure:
        figure = visualization.plot_param_importances(
            study, evaluator=PedAnovaImportanceEvaluator(), target_name="gain"
        )
        figure.update_xaxes(title="importance for the gain, as a share of all knobs")
        figure.update_yaxes(title="")
        return figure

    def contour(study: "optuna.Study") -> go.Figure:
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        return visualization.plot_contour(study, params=list(found)[:2], target_name="gain (%)")

    return {
        "importances": importances,
        "slice": lambda study: visualization.plot_slice(study, target_name="gain (%)"),
        "contour": contour,
        "parallel": lambda study: visualization.plot_parallel_coordinate(
            study, target_name="gain (%)"
        ),
    }


def knobs_figure(name: str, trials: pd.DataFrame, theme: Theme) -> go.Figure:
    """One of `knobs_figures` in the page's colours; empty where there are too few trials."""
    study = study_of(trials)
    figure = empty_figure(theme, 320)
    if study is None:
        return figure
    if name == "contour" and len(study.trials[0].params) < 2:
        return figure
    drawn = knobs_figures()[name](study)
    drawn.update_layout(figure.layout, template="none", title=None, width=None, autosize=True)
    axis = {"gridcolor": theme.grid, "linecolor": theme.grid, "zeroline": False}
    drawn.update_xaxes(**axis)
    drawn.update_yaxes(**axis)
    return drawn


def study_of(trials: pd.DataFrame) -> "optuna.Study | None":
    """A study in memory with the trials that were measured, and the knobs that they differ in.

    None where fewer than `FEWEST_TRIALS` were measured, or all with one setting.
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    known = trials[(trials["state"] == "complete") & trials["gain_percent"].notna()]
    settings = [_in_units_of_people(setting) for setting in known["values"]]
    values = pd.DataFrame(settings)
    spaces = {str(plain(knob)): _space(values[knob].dropna().tolist()) for knob in values}
    spaces = {knob: space for knob, space in spaces.items() if space is not None}
    if len(known) < FEWEST_TRIALS or not spaces:
        return None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    for setting, gain in zip(settings, known["gain_percent"], strict=True):
        own = {str(plain(knob)): value for knob, value in setting.items()}
        params = {knob: own[knob] for knob in spaces if knob in own}
        of_trial: dict[str, Any] = {knob: spaces[knob] for knob in params}
        study.add_trial(
            create_trial(
                state=TrialState.COMPLETE, params=params, distributions=of_trial, value=float(gain)
            )
        )
    return study


def _in_units_of_people(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes in MiB, whose axes people can read."""
    return {
        f"{knob.removesuffix('_bytes')} (MiB)" if knob.endswith("_bytes") else knob: (
            value / 2**20 if knob.endswith("_bytes") and isinstance(value, int) else value
        )
        for knob, value in setting.items()
    }


def _space(values: list[Any]) -> "optuna.distributions.BaseDistribution | None":
    """The distribution of one knob's values; None: they are all alike."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if len(set(map(str, values))) < 2:
        return None
    if any(isinstance(value, bool | str) for value in values):
        return CategoricalDistribution(sorted(set(values), key=str))
    low, high = float(min(values)), float(max(values))
    return FloatDistribution(low, high, log=low > 0 and high / low >= _LOG_RATIO)
