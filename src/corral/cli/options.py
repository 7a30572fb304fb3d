"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from corral.config import Layout, default_directory

C = TypeVar("C", bound=Callable[..., Any])


def _layout(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Layout:
    return Layout((value or default_directory()).absolute())


def data_directory(command: C) -> C:
    """Add ``--data-dir``; the command gets it as ``layout``."""
    return click.option(
        "--data-dir",
        "layout",
        envvar="CORRAL_DATA_DIR",
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        callback=_layout,
        help=f"Where objects, images and machines are kept.  [default: {default_directory()}]",
    )(command)


def namespace(command: C) -> C:
    """Add ``--namespace``; None stands for the namespace of the kubeconfig's context."""
    return click.option("-n", "--namespace", help="Namespace of the object.")(command)


def kubeconfig(command: C) -> C:
    """Add ``--kubeconfig``; None stands for $KUBECONFIG, then corral's own."""
    return click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        help="The cluster to speak to.  [default: $KUBECONFIG, else the data directory's]",
    )(command)
