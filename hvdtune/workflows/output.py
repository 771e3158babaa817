"""Where the ranks' output goes beside a run folder."""

from __future__ import annotations

from contextlib import ExitStack

from hvdtune.cli.options import RunOptions
from hvdtune.launch.output import Writer, stamped, terminal_writer
from hvdtune.launch.rank_files import rank_files


def output_writers(options: RunOptions, ranks: int, stack: ExitStack) -> list[Writer]:
    """The terminal, and the folder of --output-filename, whose files `stack` closes.

    Raises UsageError when that folder cannot be written.
    """
    terminal = terminal_writer()
    writers = [stamped(terminal) if options.prefix_output_with_timestamp else terminal]
    if options.output_filename is not None:
        writers.append(stack.enter_context(rank_files(options.output_filename, ranks)))
    return writers
