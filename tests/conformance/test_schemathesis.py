"""schemathesis: requests made of the OpenAPI that is served, right ones and wrong ones."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.cluster import Outside, outside
from tests.conformance.api import Api

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.usefixtures("leaves_sockets"),
]

OPERATIONS = 12
"""How many are tried of each group and version, and with how many requests."""
EXAMPLES = 2
ENDLESS = ("watch", "sendInitialEvents", "follow")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Iterator[Outside]:
    """A server of its own: whole collections are deleted."""
    directory = tmp_path_factory.mktemp("fuzzed")
    with outside("--machine", "hollow", "--no-controllers", directory=directory) as alone:
        yield alone
        log = (directory / "bench.log").read_text()
        assert "Traceback" not in log, log[log.index("Traceback") :][:3000]


@pytest.fixture(scope="module")
def documents(alone) -> dict[str, Any]:
    with Api(alone.one.directory / "kubeconfig") as api:
        index = api.get_document("/openapi/v3")["paths"]
        return {
            place: api.get_document(entry["serverRelativeURL"]) for place, entry in index.items()
        }


@pytest.fixture(scope="module")
def session(alone) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.verify = str(alone.one.directory / "pki" / "ca.crt")
        session.headers.update(alone.one.headers)
        yield session


def test_nothing_that_is_sent_makes_the_server_fail(alone, documents, session):
    chance = random.Random(2)
    tried = 0
    for document in documents.values():
        found = schemathesis.openapi.from_dict(document).get_all_operations()
        known = [each.ok() for each in found if is_quick(each.ok())]
        for operation in chance.sample(known, min(len(known), OPERATIONS)):
            attempt(alone, session, operation)
            tried += 1
    assert tried > 200


def is_quick(operation) -> bool:
    """Machines have so many fields that making one up takes seconds: tests/unit does it better."""
    return not operation.body or "kubevirt.io" not in operation.path


def attempt(alone, session, operation) -> None:
    @seed(2)
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        known = {"namespace": "default", "name": "x"}
        case.path_parameters.update(
            (name, value) for name, value in known.items() if name in case.path_parameters
        )
        for name in ENDLESS:
            case.query.pop(name, None)
        answer = case.call(
            base_url=f"https://127.0.0.1:{alone.one.port}", session=session,
            verify=session.verify, timeout=120,
        )  # fmt: skip
        assert answer.status_code < 500, (operation.label, case.as_curl_command(), answer.text)

    ask()
