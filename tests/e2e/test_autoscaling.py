"""A training lab, as its users do it: load in a real guest, and the autoscaler that answers it."""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from tests.cluster import EXAMPLES, PATIENCE, Outside, outside, ranges, until
from tests.console import console

from corral.api.quantity import NANO, parse

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(1800)]

Document = dict[str, Any]

NAME = "lab05-cirros-replicaset"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
APIS = {
    "vmirs": "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets",
    "vmpool": "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools",
    "hpa": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "vmi": "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances",
}

AIM, LIMIT, ASKED = 75, 300, 100 + 5 + 1
"""Percent that the lab aims at; and thousandths of a processor: what its machine may take, and
what its pod asks for, with its overhead."""
FULL = 100 * LIMIT / ASKED
"""Percent that a machine takes of what its pod asks for when it has all that its limit allows."""
IDLE = 0.03
"""Processors that a machine takes at most which has nothing to do: far below the aim."""
LOAD = "load() { dd if=/dev/zero of=/dev/null & }; load; read; killall dd"
BEHAVIOR = {"scaleDown": {"stabilizationWindowSeconds": 15}}
"""Shortened: the lab waits 300 s before it shrinks."""


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory) -> Iterator[Outside]:
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        yield user


def manifest(kind: str) -> Document:
    """The lab's set, or a pool of the same machines; one machine to begin with."""
    document = yaml.safe_load((EXAMPLES / "vmirs-cirros-lab.yaml").read_text())
    document["spec"]["replicas"] = 1
    if kind == "vmpool":
        template = document["spec"].pop("template")
        document |= {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool"}
        document["spec"]["virtualMachineTemplate"] = {
            "metadata": template["metadata"],
            "spec": {"runStrategy": "Always", "template": template},
        }
    return document


def autoscaler(kind: str) -> str:
    """The lab's autoscaler, which for the pool looks at the pool."""
    text = (EXAMPLES / "hpa-cirros-lab.yaml").read_text()
    if kind == "vmpool":
        text = text.replace("kubevirt.io/v1\n", "pool.kubevirt.io/v1beta1\n")
        text = text.replace("VirtualMachineInstanceReplicaSet", "VirtualMachinePool")
    return text


def watched(user: Outside, kind: str, holds: Callable[[Document], object]) -> Document:
    """The first form of the object that is as wanted, as a watch tells it."""
    path = (
        f"{APIS[kind]}?watch=true&timeoutSeconds={PATIENCE:.0f}&fieldSelector=metadata.name={NAME}"
    )
    last: Document = {}
    with contextlib.closing(user.one.connect()) as connection:
        connection.timeout = PATIENCE
        connection.request("GET", path, headers=user.one.headers)
        answer = connection.getresponse()
        while line := answer.readline():
            last = json.loads(line)["object"]
            if holds(last):
                return last
    raise AssertionError(f"{kind} {NAME} was not as wanted within {PATIENCE} s: {last}")


def share(document: Document) -> int | None:
    """The percentage that ``kubectl get hpa`` shows."""
    for metric in document["status"].get("currentMetrics") or ():
        if "resource" in metric:
            return metric["resource"]["current"]["averageUtilization"]
    return None


def is_idle(percent: int | None) -> bool:
    return percent is not None and percent < AIM / 4


def cpu(user: Outside) -> float:
    """How many processors the busiest pod takes; all of them where nothing is known yet."""
    taken = (
        sum(parse(each["usage"]["cpu"]).nanos for each in pod["containers"]) / NANO
        for pod in user.items("podmetrics")
    )
    return max(taken, default=float("inf"))


def has(replicas: int) -> Callable[[Document], bool]:
    """Whether so many are wanted, and there, and ready."""

    def holds(document: Document) -> bool:
        status = document.get("status", {})
        counts = status.get("replicas", 0), status.get("readyReplicas", 0)
        return document["spec"]["replicas"] == replicas and counts == (replicas, replicas)

    return holds


@pytest.mark.parametrize("kind", ["vmirs", "vmpool"])
def test_a_second_machine_shares_the_load_and_goes_when_it_ends(user, kind):
    user.kubectl("apply", "-f", "-", input=json.dumps(manifest(kind)))
    watched(user, kind, has(1))
    (machine,) = user.items("vmi")
    asyncio.run(lab(user, kind, machine["metadata"]["name"]))
    said = user.kubectl("describe", "hpa", NAME)
    for text in (
        "New size: 2; reason: cpu resource utilization (percentage of request) above target",
        "New size: 1; reason: All metrics below target",
    ):
        assert text in said
    user.kubectl("delete", "hpa", NAME)
    user.kubectl("delete", kind, NAME)
    until("its machines are gone", lambda: not user.items("vmi"))


async def lab(user: Outside, kind: str, name: str) -> None:
    async with console(user, name) as guest:
        await guest.log_in("cirros", "gocubsgo")
        await asyncio.to_thread(until, "what starting took is past", lambda: cpu(user) < IDLE)
        user.kubectl("apply", "-f", "-", input=autoscaler(kind))
        assert re.search(rf"cpu: \S+/{AIM}% +1 +2 ", user.kubectl("get", "hpa", NAME))
        change = {"behavior": BEHAVIOR}
        user.kubectl("patch", "hpa", NAME, "--type=merge", "-p", json.dumps({"spec": change}))
        await seen(user, "hpa", lambda each: is_idle(share(each)))
        assert has(1)(user.get(kind, NAME))

        await guest.types(LOAD, r"load\(")  # a shell breaks what is longer than a line
        busy = await seen(user, "hpa", lambda each: (share(each) or 0) > 2 * AIM)
        assert share(busy) < 1.1 * FULL, "no more than the limit allows"
        assert re.search(rf" cpu: \d\d\d%/{AIM}% +1 +2 ", user.kubectl("get", "hpa", NAME))
        await seen(user, kind, has(2))
        assert len(user.items("vmi")) == 2

        # Enter ends the load.  No prompt need follow: the signal that dd has ended may interrupt
        # the shell as it writes one, and busybox does not write again what was interrupted.
        await guest.types("", r"\n")
        await seen(user, kind, has(1))


async def seen(user: Outside, kind: str, holds: Callable[[Document], object]) -> Document:
    return await asyncio.to_thread(watched, user, kind, holds)
