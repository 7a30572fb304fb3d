"""How a target is found, and changed while others change it too."""

import msgspec
import pytest
from lightkube.models.autoscaling_v2 import CrossVersionObjectReference as Reference

from corral.api.errors import Conflict, NotFound
from corral.api.kinds import KINDS
from corral.api.request import Request, Response
from corral.client.client import Client
from corral.cluster.autoscaler import targets
from corral.cluster.autoscaler.targets import TargetNotFound

SET = Reference(apiVersion="kubevirt.io/v1", kind="VirtualMachineInstanceReplicaSet", name="web")
PATH = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets/web/scale"


class Scales:
    """A transport to one set.  ``meanwhile`` are what others want of it before each change."""

    def __init__(self, replicas: int, meanwhile=()) -> None:
        self.replicas = replicas
        self.version = 1
        self.meanwhile = list(meanwhile)

    async def send(self, request: Request) -> Response:
        assert request.path == PATH
        if request.method == "PUT":
            self.set(msgspec.json.decode(request.body))
        return Response(status=200, body=msgspec.json.encode(self.document()))

    def document(self) -> dict:
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": "web",
                "namespace": "default",
                "resourceVersion": str(self.version),
            },
            "spec": {"replicas": self.replicas},
            "status": {"replicas": 1, "selector": "app=web"},
        }

    def set(self, scale: dict) -> None:
        if self.meanwhile:
            self.replicas = self.meanwhile.pop(0)
            self.version += 1
        if scale["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("the object has been modified")
        self.replicas = scale["spec"]["replicas"]
        self.version += 1


async def scale(scales: Scales, replicas: int) -> None:
    client = Client(scales)
    target = await targets.read(client, KINDS, "default", SET)
    await targets.rescale(client, target, replicas)


async def test_a_target_has_desired_and_current_replicas():
    target = await targets.read(Client(Scales(3)), KINDS, "default", SET)
    assert (target.replicas, target.observed, target.selector) == (3, 1, "app=web")


@pytest.mark.parametrize("times", range(5))
async def test_a_conflicting_write_is_retried(times):
    scales = Scales(1, meanwhile=[1] * times)
    await scale(scales, 4)
    assert scales.replicas == 4


async def test_repeated_conflicts_are_left_for_the_next_sync():
    with pytest.raises(Conflict):
        await scale(Scales(1, meanwhile=[1] * 9), 4)


async def test_a_concurrent_scaling_by_others_is_not_overwritten():
    scales = Scales(1, meanwhile=[1, 2])
    with pytest.raises(Conflict):
        await scale(scales, 4)
    assert scales.replicas == 2


@pytest.mark.parametrize(
    ("api_version", "kind", "message"),
    [
        ("a/b/c", "Thing", "unexpected GroupVersion string: a/b/c"),
        ("example.com/v1", "Crowd", 'no matches for kind "Crowd" in group "example.com"'),
        (None, SET.kind, f'no matches for kind "{SET.kind}" in group ""'),
        ("v1", "Pod", "the server could not find the requested resource"),
    ],
)
async def test_a_target_without_scale_is_an_error(api_version, kind, message):
    reference = Reference(apiVersion=api_version, kind=kind, name="web")
    with pytest.raises(TargetNotFound) as caught:
        await targets.read(Client(Scales(1)), KINDS, "default", reference)
    assert str(caught.value) == message


async def test_any_version_of_the_kind_is_accepted():
    old = Reference(apiVersion="kubevirt.io/v1alpha3", kind=SET.kind, name="web")
    assert (await targets.read(Client(Scales(2)), KINDS, "default", old)).replicas == 2


async def test_a_missing_target_is_not_found():
    class Empty:
        async def send(self, request: Request) -> Response:
            raise NotFound(f"nothing at {request.path}")

    with pytest.raises(NotFound):
        await targets.read(Client(Empty()), KINDS, "default", SET)
