"""Options of the network between hosts; those of CNI have the names of a kubelet's former ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from corral.config import CNI_BIN_DIRS, CNI_CONF_DIR, WIREGUARD_PORT

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


def network_options(command: C) -> C:
    """Add the options; the command gets ``wireguard_port``, ``cni_conf_dir``, ``cni_bin_dirs``."""
    command = click.option(
        "--cni-bin-dir",
        "cni_bin_dirs",
        type=Directories(),
        default=",".join(map(str, CNI_BIN_DIRS)),
        show_default=True,
        help="Where CNI plugins are (--network-backend cni).",
    )(command)
    command = click.option(
        "--cni-conf-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=str(CNI_CONF_DIR),
        show_default=True,
        metavar="DIRECTORY",
        help="Whose first configuration by name is the network (--network-backend cni).",
    )(command)
    return click.option(
        "--wireguard-port",
        type=click.IntRange(1, 65535),
        default=WIREGUARD_PORT,
        show_default=True,
        metavar="PORT",
        help="The UDP port of this host for other hosts (--network-backend wireguard).",
    )(command)
