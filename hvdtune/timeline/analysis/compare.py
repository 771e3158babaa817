"""Two traces of the same training, quantity by quantity, with confidence."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from hvdtune.timeline.analysis.metrics import breakdown, stragglers

TITLE = "Differences"
BLOCKS = 10  # neighbouring steps are alike, so they are counted as one

_PARTS = (*breakdown.PARTS, "communicate_ms")
_COLUMNS = ["quantity", "a_ms", "b_ms", "change_ms", "low_ms", "high_ms", "percent", "differs"]


def table(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """One row per quantity: the step, then its parts.

    Args:
        a, b: events of two traces, see `schema.Trace`.

    Returns:
        Columns quantity, a_ms and b_ms (means per step, over all ranks), change_ms (b - a) with its
        95 % interval low_ms to high_ms (Welch, over blocks of neighbouring steps; NaN where there
        are too few), percent (of a), differs (the interval excludes zero). The interval is one over
        steps: two launches of the very same job may differ by more.
    """
    return of_steps(*(breakdown.steady(breakdown.table(events)) for events in (a, b)))


def of_steps(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Compare the steady steps of two breakdowns as `table` does."""
    rows = [_row("step", _mean("step_ms")(left), _mean("step_ms")(right))]
    rows += [
        _row(part.removesuffix("_ms"), _mean(part)(left), _mean(part)(right)) for part in _PARTS
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def sentence(table: pd.DataFrame) -> str:
    """Whether steps take longer, and which part changed most."""
    step = table.iloc[0]
    if not np.isfinite(step["low_ms"]):
        return "Too few steps to compare."
    interval = f"{step['change_ms']:+.3f} ms [{step['low_ms']:+.3f}, {step['high_ms']:+.3f}]"
    if not step["differs"]:
        return f"No difference of step times is shown: {interval} per step."
    word = "longer" if step["change_ms"] > 0 else "shorter"
    text = f"Steps are {abs(step['percent']):.1f} % {word} in the second: {interval}."
    parts = table.iloc[1:]
    parts = parts[parts["differs"] & (np.sign(parts["change_ms"]) == np.sign(step["change_ms"]))]
    if parts.empty:
        return text
    most = parts.loc[parts["change_ms"].abs().idxmax()]
    return f"{text} The part that changed most is {most['quantity']} ({most['change_ms']:+.3f} ms)."


def _mean(column: str) -> Callable[[pd.DataFrame], NDArray[np.float64]]:
    def over_ranks(steps: pd.DataFrame) -> NDArray[np.float64]:
        if steps.empty:
            return np.empty(0)
        mean: NDArray[np.float64] = stragglers.part(steps, column).mean(axis=1)
        return mean

    return over_ranks


def _row(quantity: str, a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[object, ...]:
    if min(len(a), len(b)) < BLOCKS:
        means = [float(side.mean()) if len(side) else np.nan for side in (a, b)]
        return quantity, *means, means[1] - means[0], np.nan, np.nan, np.nan, False
    left, right = (
        np.array([block.mean() for block in np.array_split(side, BLOCKS)]) for side in (a, b)
    )
    change, half = _welch(left, right)
    percent = 100 * change / float(left.mean()) if left.mean() else np.nan
    low, high = change - half, change + half
    # Times are whole ns: what is below one is rounding.
    differs = bool(low > 1e-6 or high < -1e-6)
    return quantity, left.mean(), right.mean(), change, low, high, percent, differs


def _welch(left: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[float, float]:
    """The difference of means and half of its 95 % interval, for samples of unlike variance."""
    errors = np.array([side.var(ddof=1) / len(side) for side in (left, right)])
    change = float(right.mean() - left.mean())
    if errors.sum() == 0:
        return change, 0.0
    weights = errors**2 / (np.array([len(left), len(right)]) - 1)
    freedom = float(errors.sum() ** 2 / weights.sum())
    return change, float(special.stdtrit(freedom, 0.975) * np.sqrt(errors.sum()))
