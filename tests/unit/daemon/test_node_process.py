"""The process of a joined node: its parts."""

import importlib
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


def test_the_agent_names_no_kind_beside_those_of_a_node():
    """The first use of another one imports the table of all kinds, with what validates them."""
    views = {kind.view: kind for kind in KINDS if kind.group != "metrics.k8s.io"}
    of_nodes = {kind.view for kind in NODE_KINDS}
    named = {
        views[each].plural
        for name, module in agent_modules().items()
        for each in vars(module).values()
        if isinstance(each, type) and each in views and each not in of_nodes
    }
    assert named == set()


def agent_modules():
    """Return the modules of the node's room that its process has imported, by name."""
    importlib.import_module("corral.daemon.node_process")
    return {name: each for name, each in sys.modules.items() if name.startswith("corral.node.")}
