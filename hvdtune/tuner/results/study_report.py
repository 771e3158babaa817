"""report.md and verdict.json: a finished study for people and for programs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hvdtune.core.config.knobs import Setting
from hvdtune.plural import counted
from hvdtune.tuner.files import replace_file
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.calibration import Calibration
from hvdtune.tuner.space.search_space import describe, shown
from hvdtune.tuner.stats.estimates import estimate, to_percent
from hvdtune.tuner.stats.noise_floor import NoiseFloor
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.stats.verdict import Verdict, scope_of, verdict_document
from hvdtune.tuner.storage.pair_log import Pair, by_launch, pairs_of, verified
from hvdtune.tuner.storage.study_store import TrialView

_LAUNCH_COLUMNS = ("| launch | pairs | gain % | 95 % CI within the launch |", "|---|---|---|---|")

_TRIAL_HEAD = (
    "| trial | estimate over launches % | 95 % interval | measured % | +- 2 s.e. | pairs | "
    "state | setting |",
    "|---|---|---|---|---|---|---|---|",
)
_MEASURED_NOTE = (
    "The measured gain of a trial comes from a few pairs of one launch, and the maximum of many is "
    "biased upward. Only the verification is proof."
)
_ESTIMATE_NOTE = (
    " The estimate over launches combines this gain with those of similar settings and, for the "
    "verified setting, with its gains in fresh launches."
)

# The interval of two pairs says nothing: Student's t is 12.7 there.
_LEAST_PAIRS = 3


def write_verdict(verdict: Verdict, path: Path) -> None:
    """Write verdict.json."""
    write_document(verdict_document(verdict), path)


def write_document(document: Mapping[str, Any], path: Path) -> None:
    """Write a verdict's JSON values, whole or not at all."""
    replace_file(path, json.dumps(document, indent=2) + "\n")


def render_report(
    verdict: Verdict,
    default: Setting,
    calibration: Calibration,
    trials: Sequence[TrialView],
    pairs: Sequence[Pair],
    beliefs: Mapping[int, Belief] = MappingProxyType({}),
) -> str:
    """The report as Markdown; `beliefs` are by the trials' numbers."""
    sections = [
        f"# Tuning report\n\n**{verdict.text}**",
        f"**{verdict.in_use}**" if verdict.in_use else "",
        verdict.advice,
        _settings(verdict, default),
        _verification(verdict, pairs),
        _trials(trials, default, beliefs),
        _method(calibration.shape, pairs, calibration),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def render_comparison(
    verdict: Verdict, reference: Setting, calibration: Calibration, pairs: Sequence[Pair]
) -> str:
    """The report on two settings, A (the reference) and B, as Markdown."""
    assert verdict.candidate is not None
    rows = ["## Settings", "", "| knob | A | B |", "|---|---|---|"]
    for name, value in reference.items():
        other = verdict.candidate[name]
        mark = "**" if other != value else ""
        rows.append(f"| {name} | {shown(name, value)} | {mark}{shown(name, other)}{mark} |")
    sections = [
        f"# Verification of B against A\n\n**{verdict.text}**",
        "\n".join(rows),
        _verification(verdict, pairs),
        _method(calibration.shape, pairs, calibration),
    ]
    return "\n\n".join(sections) + "\n"


def render_floor(floor: NoiseFloor, shape: BlockShape, pairs: Sequence[Pair]) -> str:
    """The report on a setting against itself as Markdown."""
    low, high = floor.ci_percent
    rows = ["## By launch", "", *_LAUNCH_COLUMNS, *_launch_rows(verified(pairs))]
    sections = [
        f"# A/A floor\n\n**{floor.text}**",
        f"The standard deviation of a pair is {floor.pair_sd_percent:.2f} %. Mean of all pairs, "
        f"{scope_of(floor.launches)}: {floor.gain_percent:+.2f} % [{low:.2f}, {high:.2f}], where "
        f"the true value is 0; Wilcoxon signed rank, two-sided: p = {floor.p_value:.2g}.",
        "\n".join(rows),
        _method(shape, pairs),
    ]
    return "\n\n".join(sections) + "\n"


def _settings(verdict: Verdict, default: Setting) -> str:
    rows = ["## Setting", "", "| knob | default | chosen |", "|---|---|---|"]
    for name, value in default.items():
        chosen = verdict.setting[name]
        mark = "**" if chosen != value else ""
        rows.append(f"| {name} | {shown(name, value)} | {mark}{shown(name, chosen)}{mark} |")
    return "\n".join(rows)


def _verification(verdict: Verdict, pairs: Sequence[Pair]) -> str:
    if verdict.candidate is None:
        return ""
    mine = pairs_of(pairs, "verify", verdict.candidate)
    rows = [
        "## Verification",
        "",
        "Fresh pairs of each launch of the script.",
        "",
        *_LAUNCH_COLUMNS,
        *_launch_rows(mine),
        *_earlier(verdict),
        *_by_scope(verdict),
    ]
    if verdict.p_value is not None:
        rows += ["", f"Wilcoxon signed rank, two-sided: p = {verdict.p_value:.2g}."]
    return "\n".join(rows)


def _earlier(verdict: Verdict) -> list[str]:
    """The launches of earlier runs, each by its one number."""
    if verdict.evidence is None or not verdict.evidence.earlier:
        return []
    gains = verdict.evidence.gains_percent[: verdict.evidence.earlier]
    shown = ", ".join(f"{gain:+.1f}" for gain in gains)
    launches = counted(len(gains), "earlier launch")
    return ["", f"{launches} of this job, gain of each in %: {shown}."]


def _by_scope(verdict: Verdict) -> list[str]:
    """What was read and is believed of the setting that was verified, each with what it is of."""
    rows = []
    if verdict.in_search is not None:
        rows.append(
            f"| {verdict.in_search.scope}, before these pairs | {_gain(verdict.in_search)} |"
        )
    evidence = verdict.evidence
    if verdict.gain_percent is not None and verdict.ci_percent is not None:
        gain = _interval(verdict.gain_percent, verdict.ci_percent)
        if evidence is None:
            rows.append(f"| {verdict.scope_text}, from these pairs alone | {gain} |")
        elif verdict.ci_percent != evidence.ci_percent:
            rows.append(f"| {verdict.scope_text}, which proved it | {gain} |")
    if evidence is not None and evidence.ci_percent is not None:
        scope = scope_of(len(evidence.gains_percent))
        gain = _interval(evidence.gain_percent, evidence.ci_percent)
        rows.append(f"| {scope}, one mean per launch | {gain} |")
    if verdict.believed is not None:
        rows.append(
            f"| {verdict.believed.scope}, from all measurements | {_gain(verdict.believed)} |"
        )
    if verdict.believed is not None and verdict.believed.others_percent is not None:
        low, high = verdict.believed.others_percent
        rows.append(f"| other launches (not measured) | | {low:+.1f} to {high:+.1f} |")
    if not rows:
        return []
    return ["", "| scope | gain | 95 % interval |", "|---|---|---|", *rows]


def _interval(gain_percent: float, ci_percent: tuple[float, float]) -> str:
    low, high = ci_percent
    return f"{gain_percent:+.1f} % | {low:+.1f} to {high:+.1f}"


def _gain(belief: Belief) -> str:
    return f"{belief.gain_percent:+.1f} % | {belief.interval_text}"


def _launch_rows(pairs: Sequence[Pair]) -> list[str]:
    rows = []
    for number, log_ratios in by_launch(pairs).items():
        own = estimate(log_ratios)
        interval = "too few pairs"
        if own.n >= _LEAST_PAIRS:
            interval = f"[{to_percent(own.low):.1f}, {to_percent(own.high):.1f}]"
        rows.append(f"| {number} | {own.n} | {own.gain_percent:+.1f} | {interval} |")
    return rows


def _trials(trials: Sequence[TrialView], default: Setting, beliefs: Mapping[int, Belief]) -> str:
    measured = [trial for trial in trials if trial.setting and not trial.is_duplicate]
    if not measured:
        return ""
    order = {"complete": 0, "pruned": 1}

    def place(trial: TrialView) -> tuple[int, float]:
        belief = beliefs.get(trial.number)
        gain = to_percent(trial.log_ratio) if belief is None else belief.gain_percent
        return order.get(trial.state, 2), -gain

    measured.sort(key=place)
    note = _MEASURED_NOTE + (_ESTIMATE_NOTE if beliefs else "")
    rows = ["## Trials", "", note, "", *_TRIAL_HEAD]
    for trial in measured:
        belief = beliefs.get(trial.number)
        believed = "" if belief is None else f"{belief.gain_percent:+.1f}"
        likely = "" if belief is None else belief.interval_text
        if trial.setting == default:
            believed, likely = "0", "by definition"
        gain = "" if trial.gain_percent is None else f"{trial.gain_percent:+.1f}"
        spread = "" if trial.stderr_percent is None else f"{2 * trial.stderr_percent:.1f}"
        state = f"{trial.state}: {trial.reason}" if trial.reason else trial.state
        cells = [str(trial.number), believed, likely, gain, spread, str(trial.pairs), state]
        rows.append(f"| {' | '.join(cells)} | {describe(trial.setting, default)} |")
    known = [str(trial.number) for trial in trials if trial.setting and trial.is_duplicate]
    if known:
        rows += [
            "",
            "Not shown because the setting or fusion plan had been measured before: trial "
            f"{', '.join(known)}.",
        ]
    return "\n".join(rows)


def _method(
    shape: BlockShape, pairs: Sequence[Pair], calibration: Calibration | None = None
) -> str:
    floor = ""
    if calibration is not None:
        noise = calibration.noise
        floor = (
            f"The reference against itself: standard deviation {100 * noise.sd:.2f} % per pair "
            f"over {noise.df} pairs. "
        )
    return (
        f"## Method\n\n{_blocks(shape)} {floor}{counted(len(pairs), 'pair')} in all, listed in "
        "pairs.jsonl."
    )


def _blocks(shape: BlockShape) -> str:
    length = (
        f"{counted(shape.steps, 'step')} of about {1e3 * shape.step_s:.1f} ms, after "
        f"{shape.settle_steps} discarded steps"
    )
    if not shape.source:
        return (
            "A pair compares the reference (A) with a setting (B) in four blocks, in the order "
            f"ABBA or BAAB. A block is {length}. Times are those of the slowest rank."
        )
    pair = (
        "A pair is two launches of the command, one with the reference (A) and one with a "
        "setting (B)."
    )
    if shape.settle_steps == 0 and shape.steps == 1:
        return f"{pair} A launch is measured by {shape.source}, about {shape.step_s:.3g} s."
    return f"{pair} A launch is measured by {shape.source}: {length}."
