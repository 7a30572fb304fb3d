"""Lists of commands in help texts: what each does is told whole, however many lines that takes."""

from collections.abc import Iterable

import click

_WHOLE = 1000
"""Click cuts what is longer than a line at 80 columns."""


def write(
    formatter: click.HelpFormatter, heading: str, commands: Iterable[tuple[str, click.Command]]
) -> None:
    """A heading, and below it the commands with what they do."""
    with formatter.section(heading):
        formatter.write_dl(
            [(name, command.get_short_help_str(_WHOLE)) for name, command in commands]
        )


class Group(click.Group):
    """Commands below a command."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write(formatter, "Commands", self.commands.items())
