"""The study: what was tried, what it gained, and how the winner was verified."""

from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import figure, grid, note, nothing, section, sentences
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.figures.search import study_of
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress
from hvdtune.dashboard.study import StudyFrames
from hvdtune.dashboard.tables import trial_columns, trial_rows
from hvdtune.errors import HvdtuneError

_HINT_MEASURED = "Measured gains over the reference; bars show two standard errors."
_HINT_BELIEFS = (
    "A point with its bar is the estimate for a setting over launches, with its 95 % interval. "
    "It combines the gain measured in one launch (the small cross) with similar settings and "
    "with fresh launches of verified settings. The maximum of many measured gains is biased "
    "upward; only the verification is proof."
)
PATH, TITLE = "/study", "Study"

# Target of an export -> the name of its file.
_EXPORTS = {
    "profile": "profile.yaml",
    "env": "hvdtune.env",
    "horovod-env": "horovod.env",
    "horovod-yaml": "horovod.yaml",
    "nccl": "nccl.env",
    "ddp": "ddp.txt",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    study = run.study
    if study is None:
        return [
            html.H1(TITLE),
            nothing(
                "This trace has no tuning study.",
                "Tune the script with hvdtune run --trials 40 train.py, then open its run folder.",
            ),
        ]
    parts: list[Component] = [html.H1(TITLE), note(study.summary)]
    if study.verdict:
        mood = "good" if study.verdict.improved else "neutral"
        words: list[Component | str] = [html.Strong("Verdict  "), study.verdict.text]
        parts.insert(1, html.P(words, id="verdict", className=f"verdict {mood}"))
        if study.verdict.advice:
            parts.insert(2, html.P(study.verdict.advice, id="advice"))
        if study.verdict.in_use:
            lead, _, rest = study.verdict.in_use.partition(": ")
            parts.insert(2, html.P([html.Strong(f"{lead.capitalize()}  "), rest], id="in-use"))
    elif study.in_use:
        parts.insert(1, html.P([html.Strong("In use  "), study.in_use], id="in-use"))
    parts.append(sentences("About this study", study.warnings) or html.Span())
    verdict = study.verdict
    if study.profile is not None and verdict and (verdict.improved or verdict.is_unproved):
        parts.append(_exports(place, is_unproved=verdict.is_unproved))
    elif verdict and not study.trials.empty:
        parts.append(note("There is no setting to export: use the default."))
    if not study.trials.empty:
        parts += _trials(study, place)
    if study.verification.empty:
        shown: Component = note("No verification pairs are recorded.")
    else:
        shown = figure(
            "verification", place.run, "Points: gain of each pair of the verification in %", 320
        )
    parts.append(section("Verification on fresh pairs", shown))
    return parts


def _exports(place: PageAddress, *, is_unproved: bool) -> Component:
    buttons = [
        html.Button(name, id={"type": "export", "target": target}, className="quiet")
        for target, name in _EXPORTS.items()
    ]
    return section(
        "Export the unproven setting" if is_unproved else "Export the winner",
        html.Div(buttons, className="controls"),
        html.P(id="export-note", className="note", role="status"),
        dcc.Download(id="export-file"),
        dcc.Store(id="export-run", data=place.run),
    )


def _trials(study: StudyFrames, place: PageAddress) -> list[Component]:
    parts = [
        section(
            "Trials",
            note(study.unproved) if study.unproved else None,
            html.P(_HINT_BELIEFS if study.has_beliefs else _HINT_MEASURED, className="hint"),
            figure("trials", place.run, "Points with error bars: gain of each trial in %", 340),
            grid("trial-table", trial_columns(study.trials), trial_rows(study.trials)),
        ),
        section(
            "The best measured gain so far",
            html.P(
                "The best measured gain of the search, minus two standard errors. The maximum of "
                "many noisy trials is biased upward, so do not read it as an expected gain.",
                className="hint",
            ),
            figure(
                "incumbent",
                place.run,
                "Line: best measured gain minus two standard errors, by steps measured",
            ),
        ),
    ]
    if study_of(study.trials) is None:
        return parts
    shown = (
        ("importances", "How much each knob matters for the gain", "Bars: importance of each knob"),
        ("slice", "Each knob by itself", "Points: gain by the value of each knob"),
        ("contour", "The two knobs that matter most", "Contours: gain by the values of two knobs"),
        ("parallel", "Whole settings", "A line per trial through its knobs to its gain"),
    )
    return parts + [section(title, figure(name, place.run, label)) for name, title, label in shown]


def register(app: Dash, runs: Runs) -> None:
    for target, name in _EXPORTS.items():
        app.callback(
            Output("export-file", "data", allow_duplicate=True),
            Output("export-note", "children", allow_duplicate=True),
            Input({"type": "export", "target": target}, "n_clicks"),
            State("export-run", "data"),
            prevent_initial_call=True,
        )(_exporter(runs, target, name))


def _exporter(runs: Runs, target: str, name: str) -> Any:
    def export(clicks: int | None, run: int) -> Any:
        study = runs[run].study
        if not clicks or study is None or study.profile is None:
            return no_update, no_update
        # The core, which a laptop may lack, knows the knobs that a profile has to fit.
        try:
            from hvdtune.tuner.results.exports import export_profile
            from hvdtune.tuner.results.profile import read_profile

            if target == "profile":
                text = study.profile.read_text(encoding="utf-8")
            else:
                text = export_profile(read_profile(study.profile), target)  # type: ignore[arg-type]
        except (HvdtuneError, OSError, ImportError) as error:
            return no_update, f"{name} cannot be exported: {error}"
        return {"content": text, "filename": name}, f"{name} was downloaded."

    return export
