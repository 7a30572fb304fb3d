"""Runs a manager in the background, and tells how its start went."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

import click

from corral.cli import self_command
from corral.cli.errors import Problem
from corral.cli.output import field
from corral.config import Layout


def announced(summary: dict[str, str]) -> None:
    click.echo(summary.pop("headline"))
    for name, value in summary.items():
        click.echo("  " + field(name, value, indent=14).replace("\n", "\n  "))


def detached(layout: Layout) -> dict[str, str]:
    """Start the same command in a session of its own; answer what it says when it is ready."""
    reading, writing = os.pipe()
    with layout.log.open("ab") as log:
        child = subprocess.Popen(
            [*self_command.COMMAND, *sys.argv[1:], "--no-detach",
             "--ready-fd", str(writing)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, pass_fds=(writing,),
        )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said: dict[str, str] = json.loads(pipe.readline() or "{}")
    if "headline" in said:
        return said
    message = said.get("error") or _ended(child.wait())
    raise Problem(message, said.get("hint") or f"Its log is {layout.log}.")


def _ended(code: int) -> str:
    """How a manager ended that had no words for it; who is killed has none."""
    if code < 0:
        return f"somebody ended corral up while it started ({signal.Signals(-code).name})"
    return f"corral up ended with exit code {code}"


def tell(parent: TextIO, said: dict[str, str]) -> None:
    """Speak to the process that waits for this one, if it still does."""
    with suppress(OSError, ValueError):
        parent.write(json.dumps(said) + "\n")
        parent.close()


@dataclass(frozen=True, slots=True)
class Told:
    """Announces to the parent process."""

    parent: TextIO

    def __call__(self, summary: dict[str, str]) -> None:
        tell(self.parent, summary)
