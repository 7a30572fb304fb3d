"""The process of a joined node: its parts."""

import subprocess
import sys

from corral.api.kinds import KINDS
from corral.api.kinds.node_kinds import NODE_KINDS

FOREIGN = ("corral.server.app", "corral.server.admission.", "corral.store", "corral.controllers",
           "corral.cluster.scheduler", "corral.cluster.builtin_services", "sqlite3",
           "corral.api.kinds.served", "corral.api.cel", "corral.api.schema",
           "yaml", "starlette.applications", "importlib.metadata")  # fmt: skip
"""Parts of a manager that a node has no use for: together a fifth of its memory."""


def test_a_node_imports_no_api_server_no_controllers_and_not_all_kinds():
    code = (
        "import sys, corral.cli.manager.join, corral.daemon.node_process;"
        f"print([each for each in sys.modules if each.startswith({FOREIGN!r})])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_kinds_of_a_node_are_those_that_are_served():
    assert all(any(each is kind for kind in KINDS) for each in NODE_KINDS)
