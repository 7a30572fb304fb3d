"""A training lab, as its users do it: load in a real guest, and the autoscaler that answers it."""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from tests.cluster import EXAMPLES, Outside, outside, until

from corral.api.quantity import NANO, parse
from corral.client.kubeconfig import load
from corral.client.stream import Stream

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

Document = dict[str, Any]

NAME = "lab05-cirros-replicaset"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
RANGES = ("--pod-cidr", "10.234.0.0/16", "--service-cidr", "10.134.0.0/16")
"""Not those of other clusters that this host may have."""
APIS = {
    "vmirs": "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets",
    "vmpool": "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools",
    "hpa": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "vmi": "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances",
}
PATIENCE = 300
"""Seconds until a test gives up; no step is that long."""

FULL = 100 * 300 / (100 + 5 + 1)
"""Percent that a machine takes of what its pod asks for when it has all that its limit allows."""
AIM = 150
"""Percent that the autoscaler aims at here.  The lab's 75 is near to what the ticks of an idle
guest cost where it is emulated, and its host has more to do."""
LOAD = "load() { dd if=/dev/zero of=/dev/null & }; load; read; killall dd"
BEHAVIOR = {"scaleDown": {"stabilizationWindowSeconds": 15}}
"""Shortened: the lab waits 300 s before it shrinks."""


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory) -> Iterator[Outside]:
    with outside(*RANGES, directory=tmp_path_factory.mktemp("corral")) as user:
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
    path = f"{APIS[kind]}?watch=true&timeoutSeconds={PATIENCE}&fieldSelector=metadata.name={NAME}"
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


class Console:
    """The serial console of a guest; ``said`` is what it printed since it was opened."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._heard = aiter(stream)
        self.said = ""

    async def says(self, pattern: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not re.search(pattern, self.said):
                self.said += (await anext(self._heard)).decode(errors="replace")

    async def answer(self, prompt: str, line: str) -> None:
        """Type a line once the guest has printed a prompt."""
        await self.says(prompt)
        self.said = ""
        await asyncio.sleep(0.5)  # login discards what is typed before it asks
        await self._stream.send(line.encode() + b"\n")

    async def log_in(self) -> None:
        await self._stream.send(b"\n")
        await self.answer("login: ", "cirros")
        await self.answer("Password: ", "gocubsgo")


@contextlib.asynccontextmanager
async def console(user: Outside, name: str):
    target = load(user.one.directory / "kubeconfig")
    path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances"
    url = f"wss{target.server.removeprefix('https')}{path}/{name}/console"
    async with Stream.open(url, headers=target.headers, tls=target.tls()) as stream:
        yield Console(stream)


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
        await guest.log_in()
        await guest.says(r"[$#] ")
        await asyncio.to_thread(until, "what starting took is past", lambda: cpu(user) < 0.12)
        user.kubectl("apply", "-f", "-", input=autoscaler(kind))
        assert re.search(r"cpu: \S+/75% +1 +2 ", user.kubectl("get", "hpa", NAME))
        change = {"behavior": BEHAVIOR, "metrics": [metric(AIM)]}
        user.kubectl("patch", "hpa", NAME, "--type=merge", "-p", json.dumps({"spec": change}))
        await seen(user, "hpa", lambda each: (share(each) or 1000) < AIM)
        assert has(1)(user.get(kind, NAME))

        await guest.answer(r"[$#] ", LOAD)
        busy = await seen(user, "hpa", lambda each: (share(each) or 0) > 1.1 * AIM)
        assert share(busy) < 1.1 * FULL, "no more than the limit allows"
        assert re.search(rf" cpu: \d\d\d%/{AIM}% +1 +2 ", user.kubectl("get", "hpa", NAME))
        await seen(user, kind, has(2))
        assert len(user.items("vmi")) == 2

        await guest.answer("", "")  # Enter ends the load
        await guest.says(r"[$#] ")
        await seen(user, kind, has(1))


async def seen(user: Outside, kind: str, holds: Callable[[Document], object]) -> Document:
    return await asyncio.to_thread(watched, user, kind, holds)


def metric(percent: int) -> Document:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
