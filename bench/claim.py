"""Claims: how soon a spare is bound, among many claims, and how soon its guest answers by its name.

Claims are created by one connection, as a CI system's would be, and followed by a watch.  A guest
answers when its web server, asked from the host, returns the name of the claimed machine.
"""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.api import VMIS
from bench.boot import demo_disk, watch
from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure, percentile

CLAIMS = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachineclaims"
POOLS = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachinewarmpools"
HOLLOW, EACH_SECONDS, SPARES = 200, 0.1, 40
"""Claims of hollow machines, the time between two, and the spares that are kept meanwhile."""
REAL, REAL_SPARES = 20, 4
RANGES = ("--pod-cidr", "10.241.0.0/16", "--service-cidr", "10.242.0.0/16")
PATIENCE_SECONDS = 120.0


def measure() -> list[Figure]:
    with cluster("--machine", "hollow") as one:
        prepare(one, SPARES)
        bound = at_a_rate(one, HOLLOW, EACH_SECONDS)
    with cluster("--cpu-allocation-ratio", "50", *RANGES) as one:
        demo_disk(one.directory)
        prepare(one, REAL_SPARES, probed=True)
        of_guests, answering = one_by_one(one)
    figures = [
        Figure(f"claim → Bound, {HOLLOW} at 10/s, hollow", bound, "ms"),
        Figure("… its p99", [percentile(bound, 99)], "ms", "≤ 30 ms"),
        Figure("claim → Bound, real guests", of_guests, "ms", "≤ 30 ms"),
        Figure("claim → the guest answers by its name", answering, "ms", "≤ 100 ms"),
    ]
    return [*figures, Figure("… its p99", [percentile(answering, 99)], "ms", "≤ 100 ms")]


def prepare(one: Cluster, spares: int, *, probed: bool = False) -> None:
    """Create a warm pool with a template of its own, and wait until its spares are ready."""
    document = vmi(memory="128Mi")
    if probed:
        with_network(document)["spec"]["readinessProbe"] = {
            "httpGet": {"port": 80},
            "periodSeconds": 1,
        }
    spec = document["spec"]
    pool = {"replicas": spares, "template": {"spec": spec}}
    one.call("POST", POOLS, {"metadata": {"name": "spares"}, "spec": pool})
    one.settle(POOLS, spares, ())


def with_network(document: dict) -> dict:
    """Give a VMI an address of its own, and random numbers."""
    spec = document["spec"]
    spec["networks"] = [{"name": "default", "pod": {}}]
    devices = spec["domain"]["devices"]
    devices |= {"interfaces": [{"name": "default", "masquerade": {}}], "rng": {}}
    # The guest has its name from cloud-init.
    spec["volumes"].append({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}})
    devices["disks"].append({"name": "seed", "disk": {"bus": "virtio"}})
    return document


class Bound:
    """Claims as they are bound, followed by a watch from now on."""

    def __init__(self, one: Cluster) -> None:
        self.moments: dict[str, float] = {}
        self.statuses: dict[str, Mapping] = {}
        self._changed = threading.Condition()
        query = "?watch=true&timeoutSeconds=600"
        arguments = (one, CLAIMS + query, self._follow)
        threading.Thread(target=watch, args=arguments, daemon=True).start()

    def _follow(self, claim: dict) -> None:
        name, status = claim["metadata"]["name"], claim.get("status", {})
        if status.get("vmi") and name not in self.moments:
            with self._changed:
                self.moments[name], self.statuses[name] = time.perf_counter(), status
                self._changed.notify_all()

    def wait(self, name: str) -> float:
        """Return the moment at which a claim was bound."""
        with self._changed:
            assert self._changed.wait_for(lambda: name in self.moments, PATIENCE_SECONDS), name
        return self.moments[name]


@contextlib.contextmanager
def creating(one: Cluster) -> Iterator[http.client.HTTPSConnection]:
    with contextlib.closing(one.connect()) as connection:
        connection.connect()
        yield connection


def create(one: Cluster, connection: http.client.HTTPSConnection, name: str) -> float:
    """Create a claim; return the moment of the request."""
    body = {"metadata": {"name": name}, "spec": {"warmPoolRef": {"name": "spares"}}}
    begun = time.perf_counter()
    connection.request("POST", CLAIMS, json.dumps(body), one.headers)
    answer = connection.getresponse()
    said = answer.read()
    assert answer.status == 201, said
    return begun


def at_a_rate(one: Cluster, count: int, every_seconds: float) -> list[float]:
    """Milliseconds from the request of each claim until it is Bound."""
    bound, begun = Bound(one), {}
    with creating(one) as connection:
        due = time.perf_counter() + 0.3
        for number in range(count):
            time.sleep(max(0.0, due - time.perf_counter()))
            due += every_seconds
            begun[f"claim-{number}"] = create(one, connection, f"claim-{number}")
    return [(bound.wait(name) - moment) * 1e3 for name, moment in begun.items()]


def one_by_one(one: Cluster) -> tuple[list[float], list[float]]:
    """Milliseconds until each claim is bound, and until its guest answers; each is released."""
    bounds, answers = [], []
    bound = Bound(one)
    time.sleep(0.3)
    with creating(one) as connection:
        for number in range(REAL):
            one.settle(POOLS, REAL_SPARES, ())  # none boots meanwhile
            name = f"claim-{number}"
            begun = create(one, connection, name)
            bounds.append((bound.wait(name) - begun) * 1e3)
            status = bound.statuses[name]
            answered = answers_of(status["addresses"][0], status["vmi"]["name"])
            answers.append((answered.named - begun) * 1e3)
            one.call("DELETE", f"{CLAIMS}/{name}")
            if number % REAL_SPARES == REAL_SPARES - 1:
                while len(one.call("GET", VMIS)["items"]) > REAL_SPARES:
                    time.sleep(0.1)
    return bounds, answers


class Answers(NamedTuple):
    """The moments of a guest's first answer, and of the first one by its name."""

    first: float
    named: float


def answers_of(address: str, name: str, *, port: int = 80, pause: float = 0.002) -> Answers:
    """Ask a guest's web server for its name until it is ``name``."""
    deadline, first = time.perf_counter() + PATIENCE_SECONDS, 0.0
    while time.perf_counter() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(address, port, timeout=2)
            with contextlib.closing(connection):
                connection.request("GET", "/")
                said = connection.getresponse().read().decode().strip()
                now = time.perf_counter()
                first = first or now
                if said == name:
                    return Answers(first, now)
        time.sleep(pause)
    raise AssertionError(f"{address} does not answer as {name}")
