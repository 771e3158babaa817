"""The study: what was tried, what it gained, and how the winner was verified."""

from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import figure, grid, note, nothing, section, sentences
from hvdtune.dashboard.data import Run
from hvdtune.dashboard.shell import Place
from hvdtune.dashboard.tables import trial_columns, trial_rows

PATH, TITLE = "/study", "Study"


def layout(run: Run, place: Place) -> list[Component]:
    study = run.study
    if study is None:
        return [
            html.H1(TITLE),
            nothing(
                "No tuning study lies beside this trace.",
                "Make one: hvdtune run --trials 40 train.py, then open its run folder.",
            ),
        ]
    parts: list[Component] = [html.H1(TITLE), note(study.summary)]
    if study.verdict:
        mood = "good" if study.verdict.improved else "neutral"
        words: list[Component | str] = [html.Strong("Verdict  "), study.verdict.text]
        parts.insert(1, html.P(words, id="verdict", className=f"verdict {mood}"))
    parts.append(sentences("About this study", study.warnings) or html.Span())
    if not study.trials.empty:
        parts.append(
            section(
                "Trials",
                html.P("Gain over the reference; bars are two standard errors.", className="hint"),
                figure("trials", place.run, "Points with error bars: gain of each trial in %", 340),
                grid("trial-table", trial_columns(study.trials), trial_rows(study.trials)),
            )
        )
    if study.verification.empty:
        shown: Component = note("No verification pairs are recorded.")
    else:
        shown = figure(
            "verification", place.run, "Points: gain of each pair of the verification in %", 320
        )
    parts.append(section("Verification: fresh pairs of the winner", shown))
    return parts
