"""The process of a joined node: its parts."""

import subprocess
import sys

FOREIGN = ("corral.server.app", "corral.server.admission.", "corral.store", "corral.controllers",
           "corral.cluster.scheduler", "sqlite3")  # fmt: skip
"""Parts of a manager that a node has no use for: together a tenth of its memory."""


def test_a_node_imports_no_api_server_and_no_controllers():
    code = (
        "import sys, corral.cli.manager.join, corral.daemon.node_process;"
        f"print([each for each in sys.modules if each.startswith({FOREIGN!r})])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
