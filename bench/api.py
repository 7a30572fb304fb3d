"""The API over HTTPS: gets, lists, patches and creates, with many objects and many clients.

Machines differ, and so does one from hour to hour: each figure is given as a share of what a server
of fixed answers does just before it, too.
"""

import time

from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure
from bench.fixed import fixed
from bench.load import fill, wrk, wrk_plain

VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
OBJECTS = (0, 1000, 10_000)
CLIENTS = (1, 16, 64)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MERGE = {"Content-Type": "application/merge-patch+json"}
GOALS = {"get": "≥ 6000/s", "patch": "≥ 2000/s", "create": "≥ 2500/s"}
"""With 16 clients."""


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for objects in OBJECTS:
        with fixed() as url, cluster("--machine", "hollow", "--no-controllers") as one:
            fill(one, VMIS, lambda number: vmi(f"filler-{number}"), objects)
            one.call("POST", VMIS, vmi("one"))
            if objects:
                figures += _lists(one, objects)
            for verb in ("get", "list", "patch", "create"):  # creates last: they leave more objects
                for clients in CLIENTS:
                    plain = wrk_plain(url, clients=clients)
                    figures.append(_verb(one, verb, objects, clients, plain["per_second"]))
    return figures


def _verb(one: Cluster, verb: str, objects: int, clients: int, plain: float) -> Figure:
    """Requests a second, with what the manager spent on each, in microseconds of a processor.

    ``plain`` is how many answers a second a server gives that says the same to everybody.
    """
    many = "patches" if verb == "patch" else f"{verb}s"
    name = f"{many} of VMIs, {clients} clients, {objects} objects"
    patch = {"metadata": {"annotations": {"number": "%d"}}}
    before = one.cpu_seconds()
    match verb:
        case "get":
            run = wrk(one, f"{VMIS}/one", clients=clients)
        case "list":
            name = f"lists of 50 VMIs, {clients} clients, {objects} objects"
            run = wrk(one, f"{VMIS}?limit=50", clients=clients)
        case "patch":
            run = wrk(
                one, f"{VMIS}/one", clients=clients, body=patch, method="PATCH", headers=MERGE
            )
        case _:
            run = wrk(one, VMIS, clients=clients, body=vmi())
    spent = one.cpu_seconds() - before
    notes = {key: value for key, value in run.items() if key != "per_second"}
    notes["cpu_us"] = round(spent / (run["per_second"] * run["seconds"]) * 1e6)
    notes["of_fixed_answers"] = round(run["per_second"] / plain, 2)
    goal = GOALS.get(verb, "") if clients == 16 else ""
    if verb == "get" and clients == 16:
        goal += ", p99 ≤ 20 ms"
    label = f"{name} ({notes['of_fixed_answers']} of fixed answers)"
    return Figure(label, [run["per_second"]], "/s", goal, notes)


def _lists(one: Cluster, objects: int) -> list[Figure]:
    """Seconds of whole lists; the first Table works out what all rows show, the others do not."""
    goals = {"": "≤ 0.2 s", "Table": "≤ 0.4 s"} if objects == max(OBJECTS) else {}
    tables = [_timed(one, TABLE) for _ in range(6)]
    return [
        Figure(f"list of {objects} VMIs", [_timed(one) for _ in range(7)], "s", goals.get("", "")),
        Figure(
            f"list of {objects} VMIs, gzip", [_timed(one, encoding="gzip") for _ in range(7)], "s"
        ),
        Figure(f"Table of {objects} VMIs, first", tables[:1], "s", goals.get("Table", "")),
        Figure(f"Table of {objects} VMIs, again", tables[1:], "s", goals.get("Table", "")),
    ]


def _timed(one: Cluster, accept: str = "application/json", encoding: str = "identity") -> float:
    connection = one.connect()
    connection.connect()
    begun = time.perf_counter()
    asked = {**one.headers, "Accept": accept, "Accept-Encoding": encoding}
    connection.request("GET", VMIS, headers=asked)
    answer = connection.getresponse()
    said = answer.read()
    seconds = time.perf_counter() - begun
    connection.close()
    assert answer.status == 200, said[:300]
    assert answer.headers.get("Content-Encoding", "identity") == encoding
    return seconds
