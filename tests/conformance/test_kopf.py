"""An operator written with kopf, and its own kind: unmodified, on a live server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.api import until

OPERATOR = Path(__file__).with_name("operator_of_labs.py")

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("kopf"),
]

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: labs.labs.example.com
spec:
  group: labs.example.com
  names: {kind: Lab, plural: labs, singular: lab}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns:
        - {name: Seats, type: integer, jsonPath: .spec.seats}
        - {name: Ready, type: integer, jsonPath: .status.ready}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [seats]
              properties:
                seats: {type: integer, minimum: 0, maximum: 50}
            status:
              type: object
              x-kubernetes-preserve-unknown-fields: true
"""
LAB = """
apiVersion: labs.example.com/v1
kind: Lab
metadata: {name: physics}
spec: {seats: 2}
"""


@pytest.fixture(scope="module")
def defined(user) -> Iterator[None]:
    user.kubectl("apply", "-f", "-", input=DEFINITION)
    user.kubectl("wait", "crd/labs.labs.example.com", "--for=condition=Established")
    yield
    user.kubectl("delete", "crd", "labs.labs.example.com", "--timeout=120s")


@pytest.fixture
def operator(user, defined, namespace, tmp_path) -> Iterator[Path]:
    """The operator at work; the value is its log."""
    log = tmp_path / "operator.log"
    command = [
        sys.executable, "-m", "kopf", "run", "--standalone", "--namespace", namespace, OPERATOR,
    ]  # fmt: skip
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=user.one.environment(), stdout=file, stderr=subprocess.STDOUT
        )
        try:
            yield log
        finally:
            process.terminate()
            process.wait()


@pytest.mark.does("life")
def test_a_lab_has_as_many_machines_as_seats(user, operator, namespace):
    def ready() -> str:
        path = "jsonpath={.status.ready}"
        return user.kubectl("get", "labs", "physics", "-n", namespace, "-o", path)

    user.kubectl("apply", "-n", namespace, "-f", "-", input=LAB)
    until("both machines are ready", lambda: ready() == "2")
    change = '{"spec":{"seats":1}}'
    user.kubectl("patch", "lab", "physics", "-n", namespace, "--type=merge", "-p", change)
    until("one machine is left", lambda: ready() == "1")
    user.kubectl("delete", "lab", "physics", "-n", namespace, "--timeout=120s")
    until("its set is gone", lambda: not user.items("vmirs", "-n", namespace))
    log = operator.read_text()
    assert "the lab is over" in log
    assert "Traceback" not in log, log
