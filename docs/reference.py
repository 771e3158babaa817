"""Writes docs/reference.md from hvdtune's own tables: `python docs/reference.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from hvdtune.cli.app import app
from hvdtune.core.config.knobs import Knob, load_knobs
from hvdtune.core.config.own_variables import VARIABLES
from hvdtune.horovod.vocabulary import KNOBS

PAGE: Final = Path(__file__).with_name("reference.md")
_HEAD: Final = """\
# Knobs, variables and options

This page is made from hvdtune's own tables by `python docs/reference.py`; a test holds it equal.
What Horovod calls each of these is in [horovodrun](horovodrun.md).

## Knobs

A knob is set by its variable, by `--fix NAME=VALUE`, by a line `NAME: VALUE` of a profile, or by an
option of its own. *live*: it can change while a job runs, so `--trials` tunes it. *reinit*: when
`init()` is called again, so `--mode restart` tunes it. With fewer hosts than are named, a knob does
nothing.
"""
_COMMANDS: Final = ("run", "chaos", "verify", "aa", "compare", "submit", "preflight")
# What `chaos`, `verify`, `aa` and `compare` share with `run` is listed once.
_LIKE_RUN: Final = ("chaos", "verify", "aa", "compare")
_HELP: Final = {"help"}


def render() -> str:
    """The page."""
    parts = [_HEAD, _table(("knob", "values", "default", "change", "hosts", "meaning"), _knobs())]
    parts.append(
        "## Variables\n\nOf hvdtune's own; those of Horovod are in the [guide](horovodrun.md).\n"
    )
    parts.append(_table(("variable", "meaning"), _variables()))
    run = {param.name for param in app.commands["run"].params}
    for name in _COMMANDS:
        known = run if name in _LIKE_RUN else set()
        rows = list(_options(app.commands[name], known))
        note = (
            "\nBeside those of `hvdtune run`, except what only a search needs:\n" if known else ""
        )
        parts.append(f"## hvdtune {name}\n{note}")
        parts.append(_table(("option", "meaning"), rows) if rows else "None.\n")
    return "\n".join(parts)


def _knobs() -> Iterator[tuple[str, ...]]:
    options = {term.knob: term.option for term in KNOBS if term.option}
    for knob in load_knobs():
        ways = [f"`HVDTUNE_{knob.name.upper()}`"]
        if option := options.get(knob.name):
            ways.append(f"`--{option.replace('_', '-')}`")
        hosts = str(knob.min_hosts)
        name = f"`{knob.name}`: {', '.join(ways)}"
        yield name, _values(knob), _value(knob, knob.default), knob.scope, hosts, knob.doc


def _variables() -> Iterator[tuple[str, ...]]:
    for name, meaning in VARIABLES.items():
        yield f"`{name}`", meaning


def _values(knob: Knob) -> str:
    if knob.kind == "category":
        return ", ".join(knob.choices)
    if knob.kind == "bool":
        return "0, 1"
    return f"{_value(knob, knob.low)} to {_value(knob, knob.high)} {knob.unit}".rstrip()


def _value(knob: Knob, value: object) -> str:
    if knob.kind == "bool":
        return str(int(bool(value)))
    return f"{value:,}" if knob.kind == "int" and isinstance(value, int | float) else str(value)


def _options(command: click.Command, known: set[str | None]) -> Iterator[tuple[str, str]]:
    for param in command.get_params(click.Context(command)):
        if isinstance(param, click.Option) and not param.hidden and param.name not in known | _HELP:
            spellings = ", ".join(f"`{word}`" for word in (*param.opts, *param.secondary_opts))
            metavar = f" {param.metavar}" if param.metavar else ""
            choices = (
                f" ({', '.join(param.type.choices)})"
                if isinstance(param.type, click.Choice)
                else ""
            )
            yield f"{spellings}{metavar}{choices}", param.help or ""


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in lines)
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


if __name__ == "__main__":
    PAGE.write_text(render())
