"""kubeclient, the Ruby client: unmodified, on a live server.

What it does is written in Ruby: the files of ``ruby/deeds``, a test each, named by the words of
``tests/client_table.py``.
"""

import json
from pathlib import Path

import pytest
from tests.cluster import run
from tests.conformance.manifests import machine, replica_set

HERE = Path(__file__).parent / "ruby"
DEEDS = sorted(path.stem for path in HERE.glob("deeds/*.rb"))
VERSION = "4.9"
"""What Debian has: the tests say so themselves, where it is another one."""

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("kubeclient", shown="Ruby (kubeclient)", release=VERSION),
]


@pytest.mark.parametrize(
    "deed", [pytest.param(deed, marks=pytest.mark.does(deed)) for deed in DEEDS]
)
def test_what_it_does(user, namespace, deed):
    known = {
        "release": VERSION,
        "namespace": namespace,
        "machine": machine(),
        "set": replica_set("web", replicas=2),
    }
    command = ["ruby", "-r", str(HERE / "client.rb"), str(HERE / "deeds" / f"{deed}.rb")]
    run(command, user.one.environment(), check=True, input=json.dumps(known))
