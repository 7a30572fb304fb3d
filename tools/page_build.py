"""Builds the page of the dashboard: `pip install .` does it through hatch_build.py, ./dev by hand.

It needs node 20 or newer with npm, and npm's registry for what package-lock.json names.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
OLDEST_NODE: Final = 20
_SECONDS: Final = 180


def has_node() -> bool:
    """Return whether there is a node that can build the page, with its npm."""
    if shutil.which("npm") is None or (node := shutil.which("node")) is None:
        return False
    try:
        version = subprocess.check_output([node, "--version"], text=True, timeout=_SECONDS)
        return int(version.removeprefix("v").partition(".")[0]) >= OLDEST_NODE
    except (OSError, ValueError, subprocess.SubprocessError):
        return False


def build(root: Path = ROOT, *, for_development: bool = False) -> str:
    """Build the page if its sources are newer; return why that failed, or "".

    ``for_development`` installs the packages of checks and tests, too.
    """
    sources, page = root / "dashboard", root / "src/corral/server/dashboard/page"
    try:
        if not _are_installed(sources, for_development=for_development):
            if not has_node():
                return f"there is no node {OLDEST_NODE} or newer with npm"
            _install(sources, for_development=for_development)
        if not _is_fresh(sources, page):
            _run(sources, "node", "build.mjs", str(page))
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd[:2])} failed: {error.stdout.strip()[-2000:]}"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return ""


def _install(sources: Path, *, for_development: bool) -> None:
    omitted = [] if for_development else ["--omit=dev"]
    quiet = ("--loglevel=error", "--no-audit", "--no-fund")
    # No package's script runs: esbuild's binary comes as a package of its own.
    _run(sources, "npm", "ci", "--ignore-scripts", "--fetch-retries=1", *quiet, *omitted)


def _are_installed(sources: Path, *, for_development: bool) -> bool:
    """Return whether node_modules has what the lock names, and has it since its last change."""
    modules = sources / "node_modules"
    installed, lock = modules / ".package-lock.json", sources / "package-lock.json"
    return (
        installed.exists()
        and installed.stat().st_mtime >= lock.stat().st_mtime
        and (not for_development or (modules / "typescript").exists())
    )


def _is_fresh(sources: Path, page: Path) -> bool:
    index = page / "index.html"
    return index.exists() and index.stat().st_mtime >= max(
        file.stat().st_mtime for file in _sources(sources)
    )


def _sources(sources: Path) -> Iterator[Path]:
    yield from (each for each in sources.iterdir() if each.is_file())
    yield from (sources / "src").rglob("*")  # with its directories, which tell of deleted files


def _run(sources: Path, *command: str) -> None:
    subprocess.run(
        command,
        cwd=sources,
        env=os.environ | {"NODE_DISABLE_COMPILE_CACHE": "1"},
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
    )


if __name__ == "__main__":
    sys.exit(build(for_development=True) or 0)
