"""Two traces of the same training, quantity by quantity, with confidence."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.analysis.metrics import breakdown, stragglers
from hvdtune.timeline.analysis.steps import steps_of
from hvdtune.timeline.model.trace import Trace

TITLE = "Differences"
_MANY_TIMES = 900.0  # %: from ten times as much on nobody thinks in percent
BLOCKS = 10  # neighbouring steps are alike, so they are counted as one

_WHOLE = (breakdown.PARTS[0], "off_processor_ms", *breakdown.PARTS[1:])  # they add up to a step
_PARTS = (*_WHOLE, "communicate_ms")
# What people call the quantities. The parts of waiting are called as in `quantities.QUANTITIES`.
TITLES = {
    "step": "Step time",
    "compute": "Computing",
    "off_processor": "Off the processor",
    "input": "Waiting for input",
    "gc": "Collecting garbage",
    "checkpoint": "Writing checkpoints",
    "no_processor": "Without a processor",
    "gpu_idle": "With an idle GPU",
    "wait": "Waiting for ranks",
    "negotiate": "Waiting for negotiation",
    "exposed": "Waiting for buckets",
    "communicate": "Communicating, hidden or not",
}
_COLUMNS = ["quantity", "a_ms", "b_ms", "change_ms", "low_ms", "high_ms", "percent", "differs"]


def table(a: Trace, b: Trace) -> pd.DataFrame:
    """One row per quantity: the step, then its parts.

    Args:
        a, b: two traces, as read.

    Returns:
        Columns quantity (computing is apart from time off the processor where both traces tell
        that), a_ms and b_ms (means per step, over all ranks; NaN where a trace does not tell),
        change_ms (b - a) with its 95 % interval low_ms to high_ms (Welch, over blocks of
        neighbouring steps), percent (of a; NaN where that is zero), differs (the interval excludes
        zero). The interval is one over
        steps: two launches of the very same job may differ by more. There is no row where either
        trace has fewer than `BLOCKS` steady steps.
    """
    return of_steps(*(steps_of(trace) for trace in (a, b)))


def of_steps(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Compare the steady steps of two breakdowns as `table` does."""
    if min(_step_count(left), _step_count(right)) < BLOCKS:
        return pd.DataFrame(columns=_COLUMNS)
    left, right = _apart_from_computing((left, right))
    rows = [
        _row(part.removesuffix("_ms"), _mean(left, part), _mean(right, part))
        for part in ("step_ms", *_PARTS)
        if part in left
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _apart_from_computing(sides: tuple[pd.DataFrame, ...]) -> tuple[pd.DataFrame, ...]:
    """Time off the processor is no computing, where both sides tell the two apart."""
    if any(side["off_processor_ms"].isna().any() for side in sides):
        return tuple(side.drop(columns="off_processor_ms") for side in sides)
    return tuple(map(breakdown.apart_from_computing, sides))


def sentence(table: pd.DataFrame, sides: Mapping[str, pd.DataFrame]) -> str:
    """Whether steps take longer, and which part changed most.

    Args:
        table: of `of_steps`.
        sides: the two breakdowns that it compares, by what people call them.
    """
    if table.empty:
        steps = {name: _step_count(side) for name, side in sides.items()}
        few = [f"{name} has {count}" for name, count in steps.items() if count < BLOCKS]
        return (
            f"Too few steps to compare: {' and '.join(few)}; at least {BLOCKS} are needed. The "
            "first steps, in which caches fill, do not count."
        )
    step = table.iloc[0]
    if not step["differs"]:
        return f"No difference of step times is shown: {_change(step)} per step."
    word = "longer" if step["change_ms"] > 0 else "shorter"
    if step["percent"] >= _MANY_TIMES:
        difference = f"take {relative(step['percent'])} as long"
    else:
        difference = f"are {abs(step['percent']):.1f} % {word}"
    text = f"Steps {difference} in the second: {_change(step)}."
    parts = table[(table["quantity"] + "_ms").isin(_WHOLE)]
    most = parts.iloc[int(parts["change_ms"].abs().fillna(0.0).to_numpy().argmax())]
    doubt = "" if most["differs"] else ", which may be chance"
    title = TITLES[most["quantity"]].lower()
    return f"{text} The part that changed most is {title}: {_change(most)}{doubt}."


def relative(percent: float) -> str:
    """A change in percent, or where it is a manifold, how many times as much it is: "50x"."""
    if percent >= _MANY_TIMES:
        return f"{float(f'{1 + percent / 100:.2g}'):,.0f}x"
    return f"{percent:.2f}"


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `of_steps` that either side has time in, for people.

    Returns:
        Columns quantity (its title), a_ms, b_ms, change_ms, interval_ms (a text), percent.
    """
    rows = table[table[["a_ms", "b_ms"]].fillna(0.0).any(axis=1)]
    interval = [_interval(row) for _, row in rows.iterrows()]
    rows = rows.assign(quantity=rows["quantity"].map(TITLES), interval_ms=interval)
    return rows[["quantity", "a_ms", "b_ms", "change_ms", "interval_ms", "percent"]]


def _change(row: pd.Series) -> str:
    return f"{row['change_ms']:+.2f} ms (95 % interval {_interval(row)})"


def _interval(row: pd.Series) -> str:
    if np.isnan(row["change_ms"]):
        return "not known"
    return f"{row['low_ms']:+.2f} to {row['high_ms']:+.2f}"


def _step_count(steps: pd.DataFrame) -> int:
    return 0 if steps.empty else len(stragglers.part(steps, "step_ms"))


def _mean(steps: pd.DataFrame, column: str) -> NDArray[np.float64]:
    """The mean over ranks of each step; NaN: the trace does not tell."""
    if steps[column].isna().all():
        return np.full(_step_count(steps), np.nan)
    mean: NDArray[np.float64] = stragglers.part(steps, column).mean(axis=1)
    return mean


def _row(quantity: str, a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[object, ...]:
    left, right = (
        np.array([block.mean() for block in np.array_split(side, BLOCKS)]) for side in (a, b)
    )
    # Blocks may differ by a step in length, so their means are not those of the steps.
    mean_a, mean_b = float(a.mean()), float(b.mean())
    change, half = mean_b - mean_a, _half_interval(left, right)
    percent = 100 * change / mean_a if mean_a else np.nan
    low, high = change - half, change + half
    # Times are whole ns: what is below one is rounding.
    differs = bool(low > 1e-6 or high < -1e-6)
    return quantity, mean_a, mean_b, change, low, high, percent, differs


def _half_interval(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Half of the 95 % interval of a difference of means, for samples of unlike variance."""
    from scipy import special  # whose import takes longer than all else of a small comparison

    errors = np.array([side.var(ddof=1) / len(side) for side in (left, right)])
    if errors.sum() == 0:
        return 0.0
    weights = errors**2 / (np.array([len(left), len(right)]) - 1)
    freedom = float(errors.sum() ** 2 / weights.sum())
    return float(special.stdtrit(freedom, 0.975) * np.sqrt(errors.sum()))
