"""The noise floor: a setting measured against itself. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from hvdtune.plural import counted
from hvdtune.tuner.stats.estimates import (
    estimate_over_launches,
    from_percent,
    noise_floor,
    noise_of,
    pairs_needed,
    signed_rank_p,
    to_percent,
)
from hvdtune.tuner.stats.verdict import TOO_NOISY

_ALPHA = 0.05


@dataclass(frozen=True)
class NoiseFloor:
    """The A/A floor; percent, at 95 %.

    `noise_floor_percent` is by how much the mean of `pairs` pairs differs from zero by chance,
    `pair_sd_percent` the spread of one pair, `pairs_needed` how many pairs show a gain of
    `resolution_percent`. "noisy": more than a verification may take.
    """

    kind: Literal["floor", "noisy"]
    noise_floor_percent: float
    pair_sd_percent: float
    gain_percent: float
    ci_percent: tuple[float, float]
    p_value: float
    pairs: int
    launches: int
    resolution_percent: float
    pairs_needed: int
    text: str

    @property
    def exit_code(self) -> int:
        """0, or 4 when a verification here would be too noisy to decide."""
        return TOO_NOISY if self.kind == "noisy" else 0

    def document(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {"version": 1, **msgspec.to_builtins(self)}


def judge_noise_floor(
    launches: Sequence[Sequence[float]], resolution_percent: float, max_pairs: int
) -> NoiseFloor:
    """The floor from A/A log ratios by launch; `max_pairs` is what a verification may take."""
    values = [value for launch in launches for value in launch]
    noise = noise_of(values)
    found = estimate_over_launches(launches)
    needed = pairs_needed(noise, from_percent(resolution_percent))
    floor_percent = to_percent(noise_floor(noise, len(values)))
    p_value = signed_rank_p(values)
    differs = p_value < _ALPHA and not found.low <= 0 <= found.high
    text = (
        f"A/A floor {floor_percent:.2f} % over {counted(found.n, 'pair')}, "
        f"{counted(len(launches), 'launch')}; a gain of {resolution_percent:g} % takes {needed} "
        "pairs"
    )
    if needed > max_pairs:
        text += (
            f", more than the {max_pairs} of a verification: reduce the load on the machine, or "
            f"verify with {needed} pairs"
        )
    if differs:
        text += (
            "; two measurements of the same setting differ by "
            f"{to_percent(found.mean):+.2f} % on average. Chance alone causes such a difference in "
            "1 of 20 cases. If it happens again, the machine's speed changes during measurements"
        )
    return NoiseFloor(
        kind="noisy" if needed > max_pairs else "floor",
        noise_floor_percent=floor_percent,
        pair_sd_percent=100 * noise.sd,
        gain_percent=found.gain_percent,
        ci_percent=(to_percent(found.low), to_percent(found.high)),
        p_value=p_value,
        pairs=found.n,
        launches=len(launches),
        resolution_percent=resolution_percent,
        pairs_needed=needed,
        text=text,
    )
