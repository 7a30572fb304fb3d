"""Packages of which corral imports some modules, without what importing the package itself imports.

``lightkube`` imports a client with its HTTP library, ``prometheus_client`` and ``uvicorn`` import
servers of their own: together a fifth of the imports of a manager's start.  ``dnslib`` has every
type of record, which the first query needs.  ``structlog`` imports ``rich``, where that is
installed, for tracebacks which ``logs`` formats itself: a seventh of the time of a short command.
``httpcore2`` imports ``h2``, where that is installed, for HTTP/2, which no client here speaks, and
the search for its own version: together 2 MiB of a node's agent.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final, cast

PACKAGES: Final = ("dnslib", "httpcore2", "lightkube", "prometheus_client", "structlog", "uvicorn")


def _metadata() -> ModuleType:
    """Return an ``importlib.metadata`` that knows no version."""
    module = ModuleType("importlib.metadata")
    vars(module)["version"] = lambda _: "0"
    return module


NAMES: Final[Mapping[str, Mapping[str, str]]] = {"uvicorn": {"Config": "uvicorn.config"}}
"""The modules of names that the packages' own modules import from them: without what else the
package has, which is 3 MiB of command line, reloader and multiprocessing in uvicorn."""
_REPLACED: Final[Mapping[str, Mapping[str, ModuleType | None]]] = {
    "structlog": {"rich": None},
    "httpcore2": {"h2": None, "importlib.metadata": _metadata()},
}
"""What a package finds when it is executed, in place of modules; None: they are not installed."""
_VERSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "httpx2.__version__": {"__title__": "httpx2", "__description__": "", "__version__": "0"},
    "websockets.version": {"tag": "0", "version": "0", "commit": "0"},
}
"""Modules of constants for headers that corral sets itself.  They search for the version of their
package by importlib.metadata, which takes a MiB, and 20 ms."""


def defer(name: str) -> None:
    """Defer the execution of a package to the first use of a name that it defines.

    Its modules can be imported before.  Does nothing for a package that is imported already.
    """
    spec = find_spec(name) if name not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    package, execute = module_from_spec(spec), spec.loader.exec_module

    def load(attribute: str) -> Any:
        if attribute in NAMES.get(name, {}):
            return getattr(import_module(NAMES[name][attribute]), attribute)
        del package.__dict__["__getattr__"]
        with _replaced(_REPLACED.get(name, {})):
            execute(package)
        return getattr(package, attribute)

    package.__dict__["__getattr__"] = load
    sys.modules[name] = package


@contextmanager
def _replaced(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Let imports find these modules meanwhile, unless the real ones are imported already."""
    absent = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(cast("dict[str, ModuleType]", absent))  # None is the import system's mark
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def defer_all() -> None:
    """Defer all packages; called before any of their modules is imported."""
    for name in PACKAGES:
        defer(name)
    for name, constants in _VERSIONS.items():
        module = ModuleType(name)
        vars(module).update(constants)
        sys.modules.setdefault(name, module)
