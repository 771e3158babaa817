"""How a search went, for the end of report.md."""

from collections.abc import Sequence

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.space.objectives import pareto_set
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.estimates import to_percent
from hvdtune.tuner.storage.study_store import StudyStore, TrialView


def render_search(store: StudyStore, runner: PairRunner, candidate: Setting | None) -> str:
    """Why it ended, what was not measured twice, what was measured again, and the Pareto set."""
    trials = store.trials()
    stop = store.get("stop")
    ended = f"It ended because {stop}." if stop else "It stopped early because the script ended."
    lines = ["## Search", "", ended]
    if runner.in_use.setting != runner.default:
        used = describe(runner.in_use.setting, runner.default)
        lines.append(f"The last trials were compared with the setting in use, {used}.")
    alike = sum(trial.is_duplicate for trial in trials)
    if alike:
        lines.append(
            "Proposals not measured because their setting or fusion plan had been measured: "
            f"{alike}."
        )
    if runner.set_aside:
        lines.append(f"Pairs measured again because of a disturbance: {runner.set_aside}.")
    sections = ["\n".join(lines)]
    if len(runner.objectives) > 1:
        sections.append(render_pareto(trials, runner.default, runner.objectives, candidate))
    return "\n\n".join(sections) + "\n"


def render_pareto(
    trials: Sequence[TrialView],
    default: Setting,
    objectives: Sequence[str],
    candidate: Setting | None,
) -> str:
    """The trials that no other beats in everything, as Markdown; `candidate` has been verified."""
    ended = [trial for trial in trials if trial.state == "complete" and not trial.is_duplicate]
    # The default is better than itself by nothing, whatever its A/A pairs say.
    points = {
        trial.number: [0.0] * len(objectives) if trial.setting == default else trial.log_ratios
        for trial in ended
    }
    front = [ended[index] for index in pareto_set(list(points.values()))]
    chosen = default if candidate is None else candidate
    # One that took the place of another, which made the script fail, may be beaten by that.
    front += [trial for trial in ended if trial.setting == chosen and trial not in front]
    verified = (
        "The default is recommended: nothing was verified."
        if candidate is None
        else "Only the recommended setting is verified, and only in the first objective."
    )
    rows = [
        "## Pareto set",
        "",
        "Settings that no other setting beats in every objective. Gains over the default in %, "
        f"each from a few pairs. {verified}",
        "",
        f"| trial | {' | '.join(objectives)} | setting |",
        f"|---|{'---|' * len(objectives)}---|",
    ]
    for trial in sorted(front, key=lambda each: -points[each.number][0]):
        gains = " | ".join(f"{to_percent(value):+.1f}" for value in points[trial.number])
        mark = " (recommended)" if trial.setting == chosen else ""
        rows.append(f"| {trial.number}{mark} | {gains} | {describe(trial.setting, default)} |")
    return "\n".join(rows)
