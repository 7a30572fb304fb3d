"""The network configuration of a host, as CNI's specification has it in /etc/cni/net.d.

The first file by name counts, as for containerd and CRI-O.  One that is wrong is an error, not
skipped: the next one may be another network.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from corral.api.object import Document
from corral.node.network.netlink import NetworkError

SUFFIXES: Final = (".conf", ".conflist", ".json")
_LIST_SUFFIX: Final = ".conflist"
VERSIONS: Final = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""Versions of the specification whose results are understood."""
_WITHOUT_CHECK: Final = ("0.3.0", "0.3.1")
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")


class NetworkConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """A list of plugins that make one network; a plugin's configuration is passed on as it is.

    file: where it was read from.
    """

    name: str
    version: str
    plugins: Sequence[Document]
    disable_check: bool = False
    file: str = ""

    @property
    def has_check(self) -> bool:
        """True if attachments may be checked: since version 0.4.0, unless disableCheck."""
        return self.version not in _WITHOUT_CHECK and not self.disable_check

    def has_capability(self, name: str) -> bool:
        """Report whether a plugin declares a capability."""
        return any(name in _capabilities(each) for each in self.plugins)

    def for_plugin(
        self, plugin: Document, capabilities: Mapping[str, Any], previous: Document | None
    ) -> Document:
        """Return what a plugin reads, for the capabilities that it declares.

        previous: the result of the plugin before it, or of all plugins after ADD.
        """
        declared = _capabilities(plugin)
        runtime = {name: value for name, value in capabilities.items() if name in declared}
        return {
            **plugin,
            "name": self.name,
            "cniVersion": self.version,
            **({"runtimeConfig": runtime} if runtime else {}),
            **({"prevResult": previous} if previous is not None else {}),
        }


def load(directory: Path) -> NetworkConfiguration:
    """Return the network configuration of a directory.  Raises NetworkError."""
    try:
        files = sorted(each for each in directory.iterdir() if each.suffix in SUFFIXES)
        if not files:
            raise NetworkError(
                f"no CNI configuration in {directory}",
                "Install a network plugin there, or name another directory with --cni-conf-dir.",
            )
        return parse(files[0], files[0].read_bytes())
    except OSError as error:
        raise NetworkError(
            f"{error.filename}: {error.strerror}",
            "Name the directory of CNI configurations with --cni-conf-dir.",
        ) from error


def parse(path: Path, content: bytes) -> NetworkConfiguration:
    """Return the configuration in a file.  Raises NetworkError with the field that is wrong."""
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _wrong(path, f"no JSON object: {error}") from error
    plugins = document.get("plugins") if path.suffix == _LIST_SUFFIX else [document]
    if not isinstance(plugins, list) or not plugins:
        raise _wrong(path, "plugins: name at least one plugin")
    for index, plugin in enumerate(plugins):
        where = f"plugins[{index}]." if path.suffix == _LIST_SUFFIX else ""
        _check_plugin(path, where, plugin)
    name, version = document.get("name", ""), document.get("cniVersion", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(path, f"name: {name!r} is not letters, digits, '_', '.' and '-'")
    if version not in VERSIONS:
        raise _wrong(
            path, f"cniVersion: {version!r} is not supported, which are {', '.join(VERSIONS)}"
        )
    return NetworkConfiguration(
        name=name,
        version=version,
        plugins=plugins,
        disable_check=document.get("disableCheck") in (True, "true"),
        file=str(path),
    )


def _check_plugin(path: Path, where: str, plugin: object) -> None:
    if not isinstance(plugin, dict):
        raise _wrong(path, f"{where[:-1]}: not an object")
    kind = plugin.get("type")
    if not isinstance(kind, str) or not kind or "/" in kind or kind.startswith("."):
        raise _wrong(path, f"{where}type: {kind!r} is not the name of a plugin")
    if not isinstance(plugin.get("capabilities", {}), dict):
        raise _wrong(path, f"{where}capabilities: not an object")


def _capabilities(plugin: Document) -> frozenset[str]:
    declared: dict[str, object] = plugin.get("capabilities") or {}
    return frozenset(name for name, value in declared.items() if value is True)


def _wrong(path: Path, message: str) -> NetworkError:
    return NetworkError(f"the CNI configuration {path} is invalid: {message}")
