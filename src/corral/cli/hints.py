"""How to start a manager as it was started last: what hints tell whoever is without one.

The options lie in a small file of the data directory.  They are for people to read, but for
``--bind``: kubeconfigs that were handed out name that address, so a start without the option goes
on there.  A manager that is started without any other option runs without it, and says so.
"""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.core import ParameterSource

from corral import files
from corral.cli.address_options import written
from corral.config import Layout

BIND: Final = "--bind"
_OF_THE_START: Final = frozenset(("layout", "detach", "systemd", "new_store", "ready_fd"))
"""Options that say where and how to start, not what."""
_KEPT: Final = frozenset(("--pod-cidr", "--service-cidr"))
"""Options whose values the data directory keeps: a start without them goes on with these."""
_GIVEN: Final = frozenset(
    (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)
)


def options(context: click.Context) -> list[str]:
    """What a running ``corral up`` was told, so that it means the same in any directory."""
    return [
        word
        for parameter in context.command.params
        if parameter.name not in _OF_THE_START
        and context.get_parameter_source(parameter.name) in _GIVEN
        for word in _words(parameter, context.params[parameter.name])
    ]


def remember(layout: Layout, given: list[str]) -> None:
    """Keep the options of a manager that has started."""
    with suppress(OSError):  # a full disk: the manager runs all the same
        files.replace(layout.options, msgspec.json.encode(given))


def up(layout: Layout) -> str:
    """The command that starts the manager of a data directory as it was started last."""
    return shlex.join(["corral", "up", "--detach", *layout.option, *_last(layout)])


def bind(layout: Layout) -> str:
    """Where the API listened last; empty where no option has ever said so."""
    last = _last(layout)
    return "".join(value for name, value in pairwise(last) if name == BIND)


def left_out(layout: Layout, given: list[str]) -> str:
    """The options of the last start whose names are not among those of this one, and that count."""
    absent = (each for each in _grouped(_last(layout)) if each[0] not in {*given, *_KEPT})
    return " ".join(map(shlex.join, absent))


def _last(layout: Layout) -> list[str]:
    return files.read_json(layout.options, list[str]) or []


def _grouped(words: list[str]) -> Iterator[list[str]]:
    """Each option with its value, if it has one."""
    begins = [at for at, word in enumerate(words) if word.startswith("--")]
    return (words[at:end] for at, end in pairwise([*begins, len(words)]))


def other(command: str, layout: Layout) -> str:
    """Another command for the same data directory: ``corral down``."""
    return shlex.join(["corral", command, *layout.option])


def of_kubeconfig(path: Path) -> Layout | None:
    """The data directory whose own kubeconfig this is, if it is one's."""
    layout = Layout(path.absolute().parent)
    is_own = path.absolute() == layout.kubeconfig and layout.lock.exists()
    return layout if is_own else None


def _words(parameter: click.Parameter, value: Any) -> Iterator[str]:
    name = parameter.opts[0]
    match value:
        case True:
            yield name
        case False:
            yield from parameter.secondary_opts
        case str() as address, int() as port:
            yield from (name, f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        case tuple():
            yield from (name, written(value))
        case Path():
            yield from (name, str(value.absolute()))
        case _:
            yield from (name, str(value))
