"""The options of a data directory's last start, and hints with commands that use them.

Only ``--bind`` of them takes effect in a later start without the option, since the kubeconfigs of
users have that address.  A start without one of the others runs without it, and reports so.  On a
joined host they are those of the agent, after the name of its command: join or node.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.core import ParameterSource

from corral import files
from corral.cli.address_options import format_ranges
from corral.config import Layout

BIND: Final = "--bind"
_NOT_SETTINGS: Final = frozenset(
    ("layout", "detach", "systemd", "new_store", "ready_fd", "server", "token", "ca_hash")
)
"""Parameters that select where and how to start, or are for joining once, and are no settings."""
_PERSISTENT: Final = frozenset(("--pod-cidr", "--service-cidr", "--label", "--taint"))
"""Options whose values the data directory or the Node keeps: a later start may leave them out."""
_GIVEN: Final = frozenset(
    (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)
)


def options(context: click.Context) -> list[str]:
    """Return the options of this start as words, with absolute paths.

    Those of a ``--config`` file stay there.
    """
    in_file = context.default_map or {}
    return [
        word
        for parameter in context.command.params
        if parameter.name not in _NOT_SETTINGS
        and not (_is_default(context, parameter) and parameter.name in in_file)
        and context.get_parameter_source(parameter.name) in _GIVEN
        for value in _values(parameter, context.params[parameter.name])
        for word in _words(parameter, value)
    ]


def _is_default(context: click.Context, parameter: click.Parameter) -> bool:
    """Return whether a parameter has its value from the file of ``--config``."""
    source = context.get_parameter_source(parameter.name or "")
    return source is ParameterSource.DEFAULT_MAP


def remember(layout: Layout, given: list[str]) -> None:
    """Write the options of a manager or agent that has started."""
    with suppress(OSError):  # only hints depend on them: a full disk must not stop the manager
        files.replace(layout.options, msgspec.json.encode(given))


def up(layout: Layout) -> str:
    """Return the command that starts the manager with the options of its last start.

    On a joined host it starts the agent.
    """
    usual = "join" if layout.membership.exists() else "up"
    last = _last(layout)
    command, *words = last if last and not last[0].startswith("--") else [usual, *last]
    return shlex.join(["corral", command, "--detach", *layout.option, *words])


def process_name(layout: Layout) -> str:
    """Return what runs on a data directory: the manager, or the agent of a joined host."""
    return "agent" if layout.membership.exists() else "manager"


def bind(layout: Layout) -> str:
    """Return the last start's ``--bind``; empty if there was none."""
    last = _last(layout)
    return "".join(value for name, value in pairwise(last) if name == BIND)


def missing_options(layout: Layout, given: list[str]) -> str:
    """Return the last start's options that this start lacks, without persistent ones."""
    absent = (each for each in _group(_last(layout)) if each[0] not in {*given, *_PERSISTENT})
    return " ".join(map(shlex.join, absent))


def _last(layout: Layout) -> list[str]:
    return files.read_json(layout.options, list[str]) or []


def _group(words: list[str]) -> Iterator[list[str]]:
    """Yield each option with its value, if it has one."""
    begins = [at for at, word in enumerate(words) if word.startswith("--")]
    return (words[at:end] for at, end in pairwise([*begins, len(words)]))


def command_line(command: str, layout: Layout) -> str:
    """Return a command with the options of a data directory, as ``corral down``."""
    return shlex.join(["corral", command, *layout.option])


def of_kubeconfig(path: Path) -> Layout | None:
    """Return the data directory that a kubeconfig belongs to, if any."""
    layout = Layout(path.absolute().parent)
    is_own = path.absolute() == layout.kubeconfig and layout.lock.exists()
    return layout if is_own else None


def _values(parameter: click.Parameter, value: Any) -> Sequence[Any]:
    """Return the values of a parameter: one, unless it may be repeated."""
    return value if getattr(parameter, "multiple", False) else (value,)


def _words(parameter: click.Parameter, value: Any) -> Iterator[str]:
    name = parameter.opts[0]
    match value:
        case True:
            yield name
        case False:
            yield from parameter.secondary_opts
        case str() as key, str() as text:
            yield from (name, f"{key}={text}")
        case {"key": key, "effect": effect, **rest}:
            text = f"={rest['value']}" if "value" in rest else ""
            yield from (name, f"{key}{text}:{effect}")
        case str() as address, int() as port:
            yield from (name, f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        case (Path(), *_):
            yield from (name, ",".join(map(str, value)))
        case tuple():
            yield from (name, format_ranges(value))
        case Path():
            yield from (name, str(value.absolute()))
        case _:
            yield from (name, str(value))
