"""Tables, sizes and progress, for a terminal of 80 columns."""

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence

import click


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as kubectl prints them: three spaces apart, upper case heads."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def field(name: str, text: str, *, indent: int = 12) -> str:
    """A name and what is said of it, wrapped under itself."""
    wrapped = textwrap.wrap(
        text, max(20, shutil.get_terminal_size().columns - indent), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    return f"{name:<{indent}}" + ("\n" + " " * indent).join(wrapped)


def size(count: float) -> str:
    """Bytes in binary units: ``7.9 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


class Line:
    """One line that is written anew while work goes on; where nobody watches, only its end."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = ""
        self._begun = time.monotonic()

    def show(self, text: str) -> None:
        """Replace what the line says."""
        if self._terminal and text != self._shown:
            click.echo(f"\r\033[K{text}", nl=False, err=True)
        self._shown = text

    def say(self, text: str) -> None:
        """A line that stays: one step is done, another begins."""
        self.clear()
        click.echo(text, err=True)

    def clear(self) -> None:
        if self._terminal and self._shown:
            click.echo("\r\033[K", nl=False, err=True)
        self._shown = ""

    @property
    def seconds(self) -> float:
        """Time since the work began."""
        return time.monotonic() - self._begun
