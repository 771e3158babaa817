"""Commands, options and arguments: click's, with hvdtune's error messages.

The options of a command with many are fields of a dataclass, each declared once by `option`,
`switch`, `flag` or `required`. A field whose default is such a dataclass is a group of options.
`parameters_of` turns the fields into the parser's parameters, and `filled` turns the parsed values
into the dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import click

_DECLARED: Final = "declared"

Action = Callable[..., Any]
Filled = TypeVar("Filled")
Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)


class _Worded:
    """A number of at least `min` and at most `max`; either may be None."""

    fault: str
    kind: Any
    min: Any
    max: Any
    fail: Any

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = self.kind(value)
        except ValueError:
            self.fail(f"'{value}' {self.fault}", param, ctx)
        # NaN fails both checks.
        if self.min is not None and not number >= self.min:
            self.fail(f"it must be at least {self.min}, not {value}", param, ctx)
        if self.max is not None and not number <= self.max:
            self.fail(f"it must be at most {self.max}, not {value}", param, ctx)
        return number


class WholeNumber(_Worded, click.IntRange):
    """Type of a count."""

    fault, kind, name = "is not a whole number", int, "integer"


class Number(_Worded, click.FloatRange):
    """Type of a quantity."""

    fault, kind, name = "is not a number", float, "number"


_PARSERS: Final = {Path: Path, int: WholeNumber(1), float: Number(1)}


class Argument(click.Argument):
    """An argument with a help text; it needs a `metavar`."""

    def __init__(self, *declared: Any, help: str = "", **settings: Any) -> None:
        super().__init__(*declared, **settings)
        self._explained = help  # some versions of click list an attribute `help` themselves

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        assert self.metavar is not None
        return self.metavar, self._explained


class CliCommand(click.Command):
    """A command whose help lists its arguments as well."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, kind in (("Arguments", click.Argument), ("Options", click.Option)):
            shown = [param for param in self.get_params(ctx) if isinstance(param, kind)]
            records = [record for param in shown if (record := param.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class CommandGroup(click.Group):
    """Commands in the order of their addition. Without a command, its help is the error message."""

    command_class = CliCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            raise click.UsageError(ctx.get_help(), ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            close = ", ".join(map(repr, get_close_matches(args[0], self.commands)))
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)


def command(cls: type[click.Command] = CliCommand) -> Callable[[Action], click.Command]:
    """Turn a function into a command."""
    return click.command(cls=cls)


def group(
    name: str | None = None, cls: type[CommandGroup] = CommandGroup, **settings: Any
) -> Callable[[Action], CommandGroup]:
    """Turn a function into a group of commands; it is called before each command."""
    return click.group(name, cls=cls, **settings)


def explained(name: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Add an Argument to a command."""
    return click.argument(name, cls=Argument, **settings)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class RowOption(click.Option):
    """An option of a dataclass.

    Attributes:
        behind: it may stand behind a script as well.
    """

    def __init__(self, *declared: Any, behind: bool = False, **settings: Any) -> None:
        super().__init__(*declared, **settings)
        self.behind = behind


def option(*spellings: str, default: Any = None, **settings: Any) -> Any:
    """Declare a field with an option, spelled like the field by default; `settings` are click's."""
    return _field(RowOption, spellings, settings, default)


def switch(*spellings: str, **settings: Any) -> Any:
    """Declare a field with an option --x or --no-x, None if neither is given."""
    return _field(RowOption, spellings, settings | {"type": bool}, None)


def flag(*spellings: str, **settings: Any) -> Any:
    """Declare a field with an option without a value."""
    return _field(RowOption, spellings, settings | {"is_flag": True}, False)


def required(kind: type[click.Parameter], *spellings: str, **settings: Any) -> Any:
    """Declare a field without a default."""
    declared = (kind, spellings, settings | {"required": True})
    return dataclasses.field(metadata={_DECLARED: declared})


def _field(
    kind: type[click.Parameter], spellings: tuple[str, ...], settings: Any, default: Any
) -> Any:
    declared = (kind, spellings, settings | {"default": default})
    return dataclasses.field(default=default, metadata={_DECLARED: declared})


def rows_of(options: Any) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields with options, those of its parts included, by name.

    A field of the dataclass itself replaces one of the same name in its parts.
    """
    own: dict[str, dataclasses.Field[Any]] = {}
    inner: dict[str, dataclasses.Field[Any]] = {}
    for field in dataclasses.fields(options):
        if dataclasses.is_dataclass(field.default):
            inner |= rows_of(field.default)
        elif _DECLARED in field.metadata:
            own[field.name] = field
    return {name: own.get(name, field) for name, field in {**own, **inner}.items()}


def spelling_of(field: dataclasses.Field[Any]) -> str:
    """Return the first spelling of a field's option: `--x` for a switch, too."""
    return _spellings(field)[0].partition("/")[0]


def _spellings(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    kind, spellings, settings = field.metadata[_DECLARED]
    if spellings or not issubclass(kind, RowOption):
        return tuple(spellings)
    name = field.name.replace("_", "-")
    return (f"--{name}/--no-{name}" if settings.get("type") is bool else f"--{name}",)


def parameters_of(options: type) -> list[click.Parameter]:
    """Return the parser's parameters, one for each option of a dataclass."""
    found = []
    for name, field in rows_of(options).items():
        kind, _, settings = field.metadata[_DECLARED]
        found.append(kind([name, *_spellings(field)], **_typed(field.type) | settings))
    return found


def _typed(annotation: Any) -> dict[str, Any]:
    """Return the parser of a field's type: a Literal is a choice, a number is at least 1.

    A tuple of any length makes an option that may be repeated.
    """
    kinds = (annotation, *get_args(annotation))
    typed: dict[str, Any] = {"multiple": True} if get_origin(annotation) is tuple else {}
    for kind in kinds:
        if get_origin(kind) is Literal:
            typed["type"] = click.Choice(get_args(kind))
        elif kind in _PARSERS:
            typed["type"] = _PARSERS[kind]
    return typed


def filled(options: type[Filled], values: Mapping[str, Any]) -> Filled:
    """Return the dataclass with these values, by option; others keep their defaults."""
    given = {}
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        if dataclasses.is_dataclass(field.default):
            given[field.name] = filled(type(field.default), values)
        elif field.name in values:
            given[field.name] = values[field.name]
    return options(**given)


def values_of(options: Any) -> dict[str, Any]:
    """Return the values of a dataclass of options, by option."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        found |= values_of(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found
