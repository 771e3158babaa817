"""Commands, options and arguments: click's, with hvdtune's sentences about what is wrong.

The options of a command that has many are fields of a dataclass, each declared once: `option`,
`switch`, `flag` and `argument` make its field, of which `parameters_of` makes the parser.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import click

_DECLARED: Final = "declared"

Action = Callable[..., Any]
Decorated = TypeVar("Decorated", bound=Callable[..., Any] | click.Command)


class _Worded:
    """A number of at least `min` and at most `max`; both may be None."""

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
        # What is not a number is neither.
        if self.min is not None and not number >= self.min:
            self.fail(f"it must be at least {self.min}, not {value}", param, ctx)
        if self.max is not None and not number <= self.max:
            self.fail(f"it must be at most {self.max}, not {value}", param, ctx)
        return number


class WholeNumber(_Worded, click.IntRange):
    """The type of a count."""

    fault, kind, name = "is not a whole number", int, "integer"


class Number(_Worded, click.FloatRange):
    """The type of a quantity."""

    fault, kind, name = "is not a number", float, "number"


class Argument(click.Argument):
    """An argument that the help explains; it needs a `metavar`."""

    def __init__(self, *declared: Any, help: str = "", **settings: Any) -> None:
        super().__init__(*declared, **settings)
        self._explained = help  # some versions of click list what they find as `help` themselves

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        assert self.metavar is not None
        return self.metavar, self._explained


class CliCommand(click.Command):
    """A command whose help lists its arguments, too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, kind in (("Arguments", click.Argument), ("Options", click.Option)):
            shown = [param for param in self.get_params(ctx) if isinstance(param, kind)]
            records = [record for param in shown if (record := param.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class CommandGroup(click.Group):
    """Commands in the order in which they are added. Alone it is a mistake whose text is its help.

    Commands that its decorators make are of class CliCommand.
    """

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
    """Makes a command of a function."""
    return click.command(cls=cls)


def group(
    name: str | None = None, cls: type[CommandGroup] = CommandGroup, **settings: Any
) -> Callable[[Action], CommandGroup]:
    """Makes a group of commands of a function, which is called before one of them."""
    return click.group(name, cls=cls, **settings)


def explained(name: str, **settings: Any) -> Callable[[Decorated], Decorated]:
    """Gives a command an Argument."""
    return click.argument(name, cls=Argument, **settings)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def option(*spellings: str, default: Any = None, **settings: Any) -> Any:
    """A field whose option is spelled like it unless said otherwise; `settings` are click's."""
    return _field(click.Option, spellings, settings, default)


def switch(*spellings: str, **settings: Any) -> Any:
    """A field whose option is --x or --no-x, None if neither is given."""
    return _field(click.Option, spellings, settings | {"type": bool}, None)


def flag(*spellings: str, **settings: Any) -> Any:
    """A field whose option takes no value."""
    return _field(click.Option, spellings, settings | {"is_flag": True}, False)


def required(kind: type[click.Parameter], *spellings: str, **settings: Any) -> Any:
    """A field that has no default."""
    declared = (kind, spellings, settings | {"required": True})
    return dataclasses.field(metadata={_DECLARED: declared})


def _field(
    kind: type[click.Parameter], spellings: tuple[str, ...], settings: Any, default: Any
) -> Any:
    declared = (kind, spellings, settings | {"default": default})
    return dataclasses.field(default=default, metadata={_DECLARED: declared})


def spellings_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """How the option of a field is spelled: `--x/--no-x` for a switch."""
    kind, spellings, settings = field.metadata[_DECLARED]
    if spellings or kind is not click.Option:
        return tuple(spellings)
    name = field.name.replace("_", "-")
    return (f"--{name}/--no-{name}" if settings.get("type") is bool else f"--{name}",)


def parameters_of(options: type) -> list[click.Parameter]:
    """The parser's parameters, one of each field of a dataclass."""
    found = []
    for field in dataclasses.fields(options):
        kind, _, settings = field.metadata[_DECLARED]
        found.append(kind([field.name, *spellings_of(field)], **settings))
    return found
