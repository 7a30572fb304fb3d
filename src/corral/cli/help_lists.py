"""Lists of commands in help texts, with their summaries in full."""

from collections.abc import Iterable

import click

_UNLIMITED = 1000
"""Length of a summary; click's default cuts at the first line."""


def write(
    formatter: click.HelpFormatter, heading: str, commands: Iterable[tuple[str, click.Command]]
) -> None:
    """Write a heading and a list of commands with their summaries."""
    with formatter.section(heading):
        formatter.write_dl(
            [(name, command.get_short_help_str(_UNLIMITED)) for name, command in commands]
        )


class Group(click.Group):
    """A group of subcommands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write(formatter, "Commands", self.commands.items())
