"""A host that joins, and what it costs while nothing happens: time, memory, CPU and requests.

The hosts are network namespaces with simulated machines, so no guest takes the CPU that is counted.
Requests are those in the audit log of the API server; usage is read before and after a minute.
"""

import json
import tempfile
import time
from pathlib import Path

from tests.hosts import HOLLOW, Host, Site, is_ready, site

from bench.cluster import cpu_seconds, memory_mib
from bench.figure import Figure

JOINS = 5
IDLE_SECONDS = 60.0
MINUTES = 3
SETTLE_SECONDS = 20.0
"""After a join, until imports, first lists and first samples are done."""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:nodes"]}, {"level": "None"}],
}


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as name, site(Path(name), 2) as made:
        directory = Path(name)
        policy, log = directory / "policy.json", directory / "audit.log"
        policy.write_text(json.dumps(POLICY))
        made.up(*HOLLOW, "--audit-policy", str(policy), "--audit-log", str(log))
        joining = joins(made, made.hosts[1])
        time.sleep(SETTLE_SECONDS)
        usage = idle(made, log)
    goals = {"server, idle": "", "joined node, idle": "≤ 0.3 % of a core"}
    return [
        Figure("corral join → node Ready", joining, "s", "≤ 2 s"),
        Figure("memory of a joined node's process", usage["memory"], "MiB", "≤ 60 MiB"),
        *(Figure(f"CPU of the {what}", usage[what], "%", goal) for what, goal in goals.items()),
        Figure("requests of an idle node", usage["requests"], "a minute"),
        Figure("reports of an idle node (without its Lease)", usage["reports"], "a minute", "≤ 2"),
    ]


def joins(made: Site, host: Host) -> list[float]:
    """Seconds from the command to the node's Ready; the host stays a member after the last one."""
    samples = []
    for number in range(JOINS):
        if number:
            host.corral("leave", "--grace-period", "0")
        samples.append(seconds_to_ready(made, host))
    return samples


def seconds_to_ready(made: Site, host: Host) -> float:
    """Join a host; return the seconds until the API has its Node Ready."""
    words = made.join_words  # with a token that is there before
    begun = time.perf_counter()
    host.corral(*words, "--detach", *HOLLOW)
    until_ready(made, {host.name})
    return time.perf_counter() - begun


def until_ready(made: Site, names: set[str]) -> None:
    """Follow the Nodes until all of these are Ready."""
    missing = set(names)
    connection = made.api.one.connect()
    path = "/api/v1/nodes?watch=true&timeoutSeconds=300"  # begins with the present Nodes
    connection.request("GET", path, headers=made.api.one.headers)
    answer = connection.getresponse()
    while missing and (line := answer.readline()):
        node = json.loads(line)["object"]
        if is_ready(node):
            missing.discard(node["metadata"]["name"])
    connection.close()
    if missing:
        raise RuntimeError(f"not Ready within 300 s: {', '.join(sorted(missing))}")


def idle(made: Site, log: Path) -> dict[str, list[float]]:
    """Usage of the manager and of a joined node over some minutes in which nothing happens."""
    server, node = made.first.pid, made.hosts[1].pid
    usage: dict[str, list[float]] = {}
    for _ in range(MINUTES):
        size = log.stat().st_size
        before = cpu_seconds(server), cpu_seconds(node)
        begun = time.perf_counter()
        time.sleep(IDLE_SECONDS)
        passed = time.perf_counter() - begun
        requests = node_requests(log, size, made.hosts[1].name)
        minutes = passed / 60
        figures = {
            "server, idle": 100 * (cpu_seconds(server) - before[0]) / passed,
            "joined node, idle": 100 * (cpu_seconds(node) - before[1]) / passed,
            "memory": memory_mib(node),
            "requests": len(requests) / minutes,
            "reports": sum(resource != "leases" for resource in requests) / minutes,
        }
        for what, figure in figures.items():
            usage.setdefault(what, []).append(figure)
    return usage


def node_requests(log: Path, offset: int, node: str) -> list[str]:
    """Return the resources of a node's requests that the audit log has after an offset."""
    with log.open("rb") as file:
        file.seek(offset)
        events = [json.loads(line) for line in file]
    return [
        each.get("objectRef", {}).get("resource", "")
        for each in events
        if each["user"]["username"] == f"system:node:{node}"
        and each["stage"] == "ResponseComplete"
        and each["verb"] != "watch"  # it ends and begins anew, every five to ten minutes
    ]
