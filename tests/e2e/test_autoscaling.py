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
from tests.console import Console, console

from corral.api.quantity import NANO, parse

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(1800)]

Document = dict[str, Any]

NAME = "lab05-cirros-replicaset"
REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
APIS = {
    "vmirs": "/apis/kubevirt.io/v1/namespaces/{}/virtualmachineinstancereplicasets",
    "vmpool": "/apis/pool.kubevirt.io/v1beta1/namespaces/{}/virtualmachinepools",
    "hpa": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
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


def share(document: Document) -> int | None:
    """The percentage that ``kubectl get hpa`` shows."""
    for metric in document["status"].get("currentMetrics") or ():
        if "resource" in metric:
            return metric["resource"]["current"]["averageUtilization"]
    return None


def is_idle(percent: int | None) -> bool:
    return percent is not None and percent < AIM / 4


def has(replicas: int) -> Callable[[Document], bool]:
    """Return whether so many are wanted, and there, and ready."""

    def holds(document: Document) -> bool:
        status = document.get("status", {})
        counts = status.get("replicas", 0), status.get("readyReplicas", 0)
        return document["spec"]["replicas"] == replicas and counts == (replicas, replicas)

    return holds


class Lab:
    """A set or a pool of the lab, in a namespace of its own, and its autoscaler."""

    def __init__(self, user: Outside, kind: str) -> None:
        self._user = user
        self._kind = kind
        self._namespace = f"lab-{kind}"

    async def kubectl(self, *words: str, input: str | None = None) -> str:  # noqa: A002
        words = ("-n", self._namespace, *words)
        return await asyncio.to_thread(self._user.kubectl, *words, input=input)

    def items(self, resource: str) -> list[Document]:
        return self._user.items(resource, "-n", self._namespace)

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        await asyncio.to_thread(until, f"{self._kind}: {what}", holds)

    async def seen(self, kind: str, holds: Callable[[Document], object]) -> Document:
        """The first form of the set, pool or autoscaler that is as expected, from a watch."""
        return await asyncio.to_thread(self._watched, kind, holds)

    def _watched(self, kind: str, holds: Callable[[Document], object]) -> Document:
        only = f"timeoutSeconds={PATIENCE:.0f}&fieldSelector=metadata.name={NAME}"
        path = f"{APIS[kind].format(self._namespace)}?watch=true&{only}"
        last: Document = {}
        with contextlib.closing(self._user.one.connect()) as connection:
            connection.timeout = PATIENCE
            connection.request("GET", path, headers=self._user.one.headers)
            answer = connection.getresponse()
            while line := answer.readline():
                last = json.loads(line)["object"]
                if holds(last):
                    return last
        raise AssertionError(f"{kind} {NAME} was not as wanted within {PATIENCE} s: {last}")

    def cpu(self) -> float:
        """Return the processors that the busiest pod uses; infinity before the first sample."""
        taken = (
            sum(parse(each["usage"]["cpu"]).nanos for each in pod["containers"]) / NANO
            for pod in self.items("podmetrics")
        )
        return max(taken, default=float("inf"))

    async def play(self) -> None:
        await self.kubectl("create", "namespace", self._namespace)
        await self.kubectl("apply", "-f", "-", input=json.dumps(manifest(self._kind)))
        await self.seen(self._kind, has(1))
        (machine,) = self.items("vmi")
        name = machine["metadata"]["name"]
        async with console(self._user, name, self._namespace) as guest:
            await guest.log_in("cirros", "gocubsgo")
            await self._rests()
            await self._works(guest)
            await self.seen(self._kind, has(1))
        said = await self.kubectl("describe", "hpa", NAME)
        for text in (
            "New size: 2; reason: cpu resource utilization (percentage of request) above target",
            "New size: 1; reason: All metrics below target",
        ):
            assert text in said
        await self.kubectl("delete", "hpa", NAME)
        await self.kubectl("delete", self._kind, NAME)
        await self.until("its machines are gone", lambda: not self.items("vmi"))

    async def _rests(self) -> None:
        """With one machine, which has nothing to do."""
        await self.until("what starting took is past", lambda: self.cpu() < IDLE)
        await self.kubectl("apply", "-f", "-", input=autoscaler(self._kind))
        assert re.search(rf"cpu: \S+/{AIM}% +1 +2 ", await self.kubectl("get", "hpa", NAME))
        change = json.dumps({"spec": {"behavior": BEHAVIOR}})
        await self.kubectl("patch", "hpa", NAME, "--type=merge", "-p", change)
        await self.seen("hpa", lambda each: is_idle(share(each)))
        assert has(1)(self._user.get(self._kind, NAME, "-n", self._namespace))

    async def _works(self, guest: Console) -> None:
        """Until a second machine is there to share the load."""
        await guest.types(LOAD, r"load\(")  # a shell breaks what is longer than a line
        busy = await self.seen("hpa", lambda each: (share(each) or 0) > 2 * AIM)
        assert share(busy) < 1.1 * FULL, "no more than the limit allows"
        assert re.search(rf" cpu: \d\d\d%/{AIM}% +1 +2 ", await self.kubectl("get", "hpa", NAME))
        await self.seen(self._kind, has(2))
        assert len(self.items("vmi")) == 2

        # Enter ends the load.  No prompt need follow: the signal that dd has ended may interrupt
        # the shell as it writes one, and busybox does not write again what was interrupted.
        await guest.types("", r"\n")


async def test_a_second_vmi_shares_the_load_and_is_removed_at_its_end(user):
    """Of a set and of a pool at once: together they may take 1.2 processors."""
    async with asyncio.TaskGroup() as labs:
        for kind in ("vmirs", "vmpool"):
            labs.create_task(Lab(user, kind).play())
