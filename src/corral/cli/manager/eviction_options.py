"""Eviction thresholds: options of ``corral up`` with a kubelet's names."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from corral.api.time import parse_duration
from corral.config import THRESHOLDS

C = TypeVar("C", bound=Callable[..., Any])


class Thresholds(click.ParamType[str]):
    """``memory.available<100Mi,nodefs.available<10%``, or ``none``; validated text."""

    name = "thresholds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from corral.node.pressure.thresholds import parse_thresholds  # noqa: PLC0415  start fast

        try:
            parse_thresholds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Duration(click.ParamType[str]):
    """``5m0s``, a duration of Go; validated text."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def pressure_options(command: C) -> C:
    """Add the options; the command gets ``eviction_hard`` and ``pressure_period``."""
    command = click.option(
        "--eviction-pressure-transition-period",
        "pressure_period",
        type=Duration(),
        default="5m0s",
        metavar="DURATION",
        show_default=True,
        help="How long a pressure must have ended before machines start again.",
    )(command)
    return click.option(
        "--eviction-hard",
        type=Thresholds(),
        default=None,
        metavar="SIGNAL<LEAST[,SIGNAL<LEAST]",
        help="Eviction thresholds, in a kubelet's syntax: below them no machine starts, and "
        "machines are evicted. none: never.  "
        f"[default: {THRESHOLDS.replace(',', ', ')}]",
    )(command)


def eviction_hard(option: str | None, machine: str) -> str:
    """Return the thresholds of the option, else the default; hollow machines need none."""
    if option is not None:
        return option
    return THRESHOLDS if machine == "qemu" else "none"
