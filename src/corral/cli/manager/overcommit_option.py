"""The option ``--overcommit`` of commands that run a node."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])


def overcommit_option(command: C) -> C:
    """Add the option; the command gets ``overcommit_percent``."""
    return click.option(
        "--overcommit",
        "overcommit_percent",
        type=click.IntRange(100, 1000),
        metavar="PERCENT",
        default=100,
        show_default=True,
        help="How much memory is promised to machines, of what they may have. More than 100 is for "
        "forks, which share memory; when it is short after all, machines are evicted.",
    )(command)
