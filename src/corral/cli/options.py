"""Options that several commands share, and virtctl's syntax for flags."""

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from corral.config import Layout, default_directory

C = TypeVar("C", bound=Callable[..., Any])

_BOOLEANS: Final = {
    "1": True, "t": True, "true": True,
    "0": False, "f": False, "false": False,
}  # fmt: skip
"""Values of a boolean flag that Go's strconv.ParseBool accepts; here in any case."""


class Command(click.Command):
    """A command whose boolean flags also take a value, as virtctl's do: ``--stdio=true``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.is_flag
            for name in parameter.opts
        }
        return super().parse_args(ctx, _without_values(args, flags))


def _without_values(arguments: list[str], flags: set[str]) -> list[str]:
    """Replace ``--flag=true`` by ``--flag``, and remove ``--flag=false``."""
    result: list[str] = []
    for index, argument in enumerate(arguments):
        if argument == "--":
            return result + arguments[index:]
        name, separator, text = argument.partition("=")
        value = _BOOLEANS.get(text.lower()) if separator and name in flags else None
        if value is None:
            result.append(argument)
        elif value:
            result.append(name)
    return result


def _layout(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Layout:
    return Layout((value or default_directory()).absolute())


def data_directory(command: C) -> C:
    """Add ``--data-dir``; the command gets it as ``layout``."""
    return click.option(
        "--data-dir",
        "layout",
        envvar="CORRAL_DATA_DIR",
        is_eager=True,  # defaults of other options may be read from there
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        callback=_layout,
        help="Where objects, images and machines are kept.  [default: CORRAL_DATA_DIR, else "
        f"{default_directory()}]",
    )(command)


def _inherited(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return the option's value, else that of the same option before the command (cobra)."""
    name = f"corral.{parameter.name}"
    if value is not None:
        context.meta[name] = value
    return context.meta.get(name)


def _target(command: C) -> C:
    """Add the options that select cluster and namespace."""
    command = click.option(
        "--context",
        callback=_inherited,
        help="The kubeconfig's context to use.  [default: its current one]",
    )(command)
    command = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=_inherited,
        help="The cluster to speak to.  [default: $KUBECONFIG, else the data directory's]",
    )(command)
    return click.option(
        "-n",
        "--namespace",
        callback=_inherited,
        help="Namespace of the object.  [default: the context's]",
    )(command)


def before_commands(group: C) -> C:
    """Accept the options of cluster and namespace before the command's name, too."""

    @wraps(group)
    def ignoring(**_options: Any) -> Any:
        return group()

    return _target(ignoring)  # type: ignore[return-value]


def session(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select cluster and namespace; the command gets ``session``."""

    @wraps(command)
    def with_session(*, find_session: Callable[[], Any], layout: Layout, **options: Any) -> Any:  # noqa: ARG001
        return command(session=find_session(), **options)

    return session_or_directory(with_session)


def session_or_directory(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same options; the command gets ``layout`` and the function ``find_session``."""

    @wraps(command)
    def with_both(
        *, namespace: str | None, kubeconfig: Path | None, context: str | None, layout: Layout,
        **options: Any,
    ) -> Any:  # fmt: skip
        from corral.cli.session import session_of  # noqa: PLC0415  others need no client

        find = partial(session_of, layout, kubeconfig, context or "", namespace or "")
        return command(find_session=find, layout=layout, **options)

    return _target(data_directory(with_both))
