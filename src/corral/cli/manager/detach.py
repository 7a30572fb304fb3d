"""Starts a manager in the background, and passes its summary or error to the parent process."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TextIO

import click

from corral.cli import self_command
from corral.cli.errors import Problem
from corral.cli.output import field
from corral.config import Layout


def print_summary(summary: dict[str, str]) -> None:
    click.echo(summary.pop("headline"))
    for name, value in summary.items():
        click.echo("  " + field(name, value, indent=14).replace("\n", "\n  "))


def start_detached(layout: Layout) -> dict[str, str]:
    """Run this command in a session of its own, and return its summary when it is ready.

    Raises Problem with the error that it reports.
    """
    reading, writing = os.pipe()
    with os.fdopen(os.open(layout.log, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)) as log:
        child = subprocess.Popen(
            [*self_command.COMMAND, *sys.argv[1:], "--no-detach",
             "--ready-fd", str(writing)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, pass_fds=(writing,),
        )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as pipe:
        report: dict[str, str] = json.loads(pipe.readline() or "{}")
    if "headline" in report:
        return report
    message = report.get("error") or _exit_message(child.wait())
    raise Problem(message, report.get("hint") or f"Its log is {layout.log}.")


def _exit_message(code: int) -> str:
    """Describe the end of a manager that reported nothing."""
    if code < 0:
        return f"corral was killed while it started ({signal.Signals(-code).name})"
    return f"corral ended with exit code {code}"


def report_to(parent: TextIO, report: dict[str, str]) -> None:
    """Write a report to the waiting parent process, if it still waits."""
    with suppress(OSError, ValueError):
        parent.write(json.dumps(report) + "\n")
        parent.close()
