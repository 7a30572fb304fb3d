"""What a user notices of another who floods the server with requests."""

import contextlib
import time

from bench.api import TABLE, VMIS
from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure, percentile
from bench.load import fill, flood

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CONNECTIONS = 200
SECONDS = 8
OBJECTS = 2000


def measure() -> list[Figure]:
    figures = []
    with cluster("--machine", "hollow", "--no-controllers") as one:
        fill(one, VMIS, lambda number: vmi(f"filler-{number}"), OBJECTS)
        quiet, loud = (_user(one, name) for name in ("quiet", "loud"))
        figures.append(_gets(one, quiet, "alone"))
        for what, path, headers in (
            ("gets", f"{VMIS}/filler-1", {}),
            (f"Tables of {OBJECTS}", VMIS, {"Accept": TABLE}),
        ):
            asked = {"Authorization": loud, **headers}
            with flood(one, path, clients=CONNECTIONS, headers=asked, seconds=SECONDS + 4):
                time.sleep(2)
                figures.append(_gets(one, quiet, f"while another floods with {what}", "≤ 100 ms"))
            time.sleep(2)
    return figures


def _gets(one: Cluster, authorization: str, when: str, goal: str = "") -> Figure:
    """Milliseconds of one request after the other, over one connection."""
    took = []
    with contextlib.closing(one.connect()) as connection:
        connection.connect()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            begun = time.perf_counter()
            connection.request("GET", f"{VMIS}/filler-0", headers={"Authorization": authorization})
            answer = connection.getresponse()
            said = answer.read()
            took.append((time.perf_counter() - begun) * 1e3)
            assert answer.status == 200, said
            time.sleep(0.005)
    notes = {f"p{each}_ms": round(percentile(took, each), 2) for each in (50, 99)}
    name = f"p99 of a get {when} over {CONNECTIONS} connections" if goal else f"p99 of a get {when}"
    return Figure(name, [notes["p99_ms"]], "ms", goal, notes)


def _user(one: Cluster, name: str) -> str:
    """A ServiceAccount that may look at what is there; the header that proves it.

    In a namespace of its own: the accounts of one count as one user.
    """
    one.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    one.call("POST", accounts, {"metadata": {"name": name}})
    one.call("POST", f"{RBAC}/namespaces/default/rolebindings", {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": name}],
    })  # fmt: skip
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = one.call("POST", f"{accounts}/{name}/token", asked)["status"]["token"]
    return f"Bearer {token}"
