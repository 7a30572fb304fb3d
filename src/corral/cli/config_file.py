"""``--config FILE``: the options of a command from a YAML file whose keys are the flags.

Options of the command line and of the environment go before those of the file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])
_NAME: Final = "config"
_NEVER: Final = frozenset((_NAME, "help", "detach", "systemd"))
"""Flags that say how to start now."""


def config_option(command: C) -> C:
    """Add ``--config``; the command gets it as ``config``."""
    return click.option(
        "--config",
        _NAME,
        is_eager=True,  # the defaults of other options come from there
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_read,
        metavar="FILE",
        help="Options in YAML: keys are the flags without --, as in boots: 2.  [default: none]",
    )(command)


def _read(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Make the values of the file defaults.  Raises BadParameter with the file and the key."""
    if path is None:
        return None
    from corral.api import yaml  # noqa: PLC0415  most starts have no file
    from corral.api.errors import ApiError  # noqa: PLC0415

    try:
        documents = yaml.load_all(path.read_text())
        keys = {key: value for each in documents for key, value in each.items()}
    except (OSError, UnicodeDecodeError, ApiError) as error:
        raise click.BadParameter(f"{path}: {error}", context, parameter) from error
    options = _options(context.command)
    defaults: dict[str, Any] = {}
    for key, value in keys.items():
        try:
            option = options[key]
            defaults[option.name or ""] = _value(option, value)
        except KeyError:
            text = f"{path}: {key} is no option of {context.command_path}"
            raise click.BadParameter(text + _similar(key, options), context, parameter) from None
        except ValueError as error:
            raise click.BadParameter(f"{path}: {key}: {error}", context, parameter) from None
    context.default_map = defaults
    return path


def _options(command: click.Command) -> Mapping[str, click.Option]:
    """Return the options that a file may hold, by key."""
    return {
        key: each
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden
        if (key := each.opts[0].removeprefix("--")) not in _NEVER
    }


def _similar(key: object, options: Mapping[str, click.Option]) -> str:
    import difflib  # noqa: PLC0415 - for mistakes alone

    found = difflib.get_close_matches(str(key).replace("_", "-"), options, n=1)
    return f". Did you mean {found[0]}?" if found else ""


def _value(option: click.Option, value: object) -> object:
    """Return a value as click converts it.  Raises ValueError."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value
    if option.multiple:
        if not isinstance(value, list):
            raise ValueError("must be a list")
        return [_text(each) for each in value]
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError("must be text or a number")  # noqa: TRY004  it becomes a message
    return str(value)
