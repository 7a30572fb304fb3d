"""The directories of a host's CNI plugins: options with the names of a kubelet's former ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from corral.config import CNI_BIN_DIRS, CNI_CONF_DIR

C = TypeVar("C", bound=Callable[..., Any])


class Directories(click.ParamType[tuple[Path, ...]]):
    """``DIRECTORY[,DIRECTORY…]``, as absolute paths."""

    name = "directory[,directory…]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Path, ...]:
        if isinstance(value, tuple):
            return value
        names = filter(None, map(str.strip, str(value).split(",")))
        found = tuple(Path(each).absolute() for each in names)
        if not found:
            self.fail("name at least one directory", param, ctx)
        return found


def cni_options(command: C) -> C:
    """Add the options; the command gets ``cni_conf_dir`` and ``cni_bin_dirs``."""
    command = click.option(
        "--cni-bin-dir",
        "cni_bin_dirs",
        type=Directories(),
        default=",".join(map(str, CNI_BIN_DIRS)),
        show_default=True,
        help="Where CNI plugins are (--network-backend cni).",
    )(command)
    return click.option(
        "--cni-conf-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=str(CNI_CONF_DIR),
        show_default=True,
        metavar="DIRECTORY",
        help="Whose first configuration by name is the network (--network-backend cni).",
    )(command)
