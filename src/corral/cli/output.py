"""Output for terminals: tables, fields, sizes and progress."""

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence

import click


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as kubectl prints it, three spaces between columns."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def field(name: str, text: str, *, indent: int = 12) -> str:
    """Return a name and its text, wrapped and indented to the terminal's width."""
    wrapped = textwrap.wrap(
        text, max(20, shutil.get_terminal_size().columns - indent), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    return f"{name:<{indent}}" + ("\n" + " " * indent).join(wrapped)


def size(count: float) -> str:
    """Return a number of bytes in binary units: ``7.9 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class ProgressLine:
    """A progress line on stderr, rewritten in place; silent unless stderr is a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = ""
        self._started = time.monotonic()

    def show(self, text: str) -> None:
        """Replace the text of the line."""
        if self._terminal and text != self._shown:
            click.echo(f"\r\033[K{text}", nl=False, err=True)
        self._shown = text

    def say(self, text: str) -> None:
        """Print a permanent line above the progress line."""
        self.clear()
        click.echo(text, err=True)

    def clear(self) -> None:
        if self._terminal and self._shown:
            click.echo("\r\033[K", nl=False, err=True)
        self._shown = ""

    @property
    def seconds(self) -> float:
        """Seconds since the line was created."""
        return time.monotonic() - self._started
