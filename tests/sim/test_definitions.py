"""Kinds that users bring, over their whole life: the server, the loops, and restarts of them."""

import asyncio
import copy
from contextlib import aclosing

import pytest
from lightkube.models.apiregistration_v1 import APIService
from lightkube.models.core_v1 import ConfigMap, Namespace
from tests.sim.cluster import cluster

from corral.api.errors import Forbidden, Invalid, MethodNotAllowed, NotFound
from corral.api.kind import Kind, Version
from corral.api.kinds.crd.custom_kinds import CustomObject
from corral.api.kinds.crd.definition import CustomResourceDefinition
from corral.api.kinds.crd.well_known import CLEANUP
from corral.api.object import Key
from corral.api.request import Request
from corral.client.client import Client
from corral.client.decoding import Bookmark
from corral.client.transport import InProcess
from corral.daemon.component_users import STAND_IN
from corral.reconcile.objects import Partial, key_of
from corral.server.authn.authenticator import ADMINISTRATOR

pytestmark = pytest.mark.looptime

HERD = Kind(
    group="farm.example.com",
    name="Herd",
    plural="herds",
    versions=(Version(name="v1"),),
    view=CustomObject,
)
"""The path of the kind's collection, as clients request it."""
NAME = Key("", "herds.farm.example.com")
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer"}, "pasture": {"type": "string"}},
        }
    },
}


def definition(plural="herds", kind="Herd", **names):
    return {
        "metadata": {"name": f"{plural}.farm.example.com"},
        "spec": {
            "group": "farm.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, **names},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": copy.deepcopy(SCHEMA)},
                }
            ],
        },
    }


def herd(name="cows", **metadata):
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": {"size": 3}}


async def conditions(c, key=NAME):
    found = await c.client.get(CustomResourceDefinition, key.name)
    return {each.type: (each.status, each.reason) for each in found.status.conditions or ()}


async def brought(c, **options):
    await c.client.create(CustomResourceDefinition, definition(**options))

    async def is_established():
        return (await conditions(c)).get("Established") == ("True", "InitialNamesAccepted")

    await c.until(is_established)


async def gone(c, view, key, kind=None):
    async def is_gone():
        try:
            await c.client.get(view, key.name, key.namespace, kind=kind)
        except NotFound:
            return True
        return False

    await c.until(is_gone)


async def test_a_kind_is_served_once_its_definition_is_established():
    async with cluster(about_itself=True) as c:
        with pytest.raises(NotFound):
            await c.client.list(Partial, kind=HERD)
        await brought(c)
        await c.client.create(Partial, herd(), kind=HERD)
        (found,) = (await c.client.list(Partial, kind=HERD)).items
        assert found.metadata.name == "cows"
        assert await conditions(c) == {
            "NamesAccepted": ("True", "NoConflicts"),
            "Established": ("True", "InitialNamesAccepted"),
        }


async def test_a_deleted_definition_stays_until_its_objects_are_gone():
    async with cluster(about_itself=True) as c:
        await brought(c)
        await c.client.create(Partial, herd(), kind=HERD)
        await c.client.create(Partial, herd("held", finalizers=["farm.example.com/vet"]), kind=HERD)
        await c.client.delete(CustomResourceDefinition, NAME)
        await gone(c, Partial, Key("default", "cows"), HERD)
        found = await c.client.get(CustomResourceDefinition, NAME.name)
        assert found.metadata.finalizers == [CLEANUP]
        assert (await conditions(c))["Terminating"] == ("True", "InstanceDeletionInProgress")
        with pytest.raises(MethodNotAllowed, match="create not allowed while"):
            await c.client.create(Partial, herd("late"), kind=HERD)
        await c.client.patch(
            Partial, Key("default", "held"), {"metadata": {"finalizers": None}}, kind=HERD
        )
        await gone(c, CustomResourceDefinition, NAME)
        with pytest.raises(NotFound):
            await c.client.list(Partial, kind=HERD)


async def test_a_deleted_kind_can_be_defined_again():
    async with cluster(about_itself=True) as c:
        for _ in range(2):
            await brought(c)
            await c.client.create(Partial, herd(), kind=HERD)
            await c.client.delete(CustomResourceDefinition, NAME)
            await gone(c, CustomResourceDefinition, NAME)


async def test_restarted_controllers_complete_a_deletion():
    async with cluster(about_itself=True) as c:
        await brought(c)
        await c.client.create(Partial, herd("held", finalizers=["farm.example.com/vet"]), kind=HERD)
        await c.client.delete(CustomResourceDefinition, NAME)
        await c.crash_loops()
        await c.client.patch(
            Partial, Key("default", "held"), {"metadata": {"finalizers": None}}, kind=HERD
        )
        c.start_loops()
        await gone(c, CustomResourceDefinition, NAME)


async def test_a_name_in_use_is_accepted_for_another_definition_once_it_is_free():
    async with cluster(about_itself=True) as c:
        await brought(c, shortNames=["h"])
        rival = Key("", "flocks.farm.example.com")
        await c.client.create(
            CustomResourceDefinition, definition("flocks", "Herd", shortNames=["h"])
        )

        async def names_are(expected):
            return (await conditions(c, rival)).get("NamesAccepted") == expected

        await c.until(lambda: names_are(("False", "ListKindConflict")))
        await c.client.delete(CustomResourceDefinition, NAME)
        await c.until(lambda: names_are(("True", "NoConflicts")))
        assert (await conditions(c, rival))["Established"][0] == "True"


@pytest.mark.parametrize("group", ["custom.metrics.k8s.io", "metrics.k8s.io", "networking.k8s.io"])
async def test_definitions_in_reserved_groups_are_rejected(group):
    async with cluster(about_itself=True) as c:
        foreign = definition()
        foreign["metadata"] = {
            "name": f"herds.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        }
        foreign["spec"]["group"] = group
        made = await c.client.create(CustomResourceDefinition, foreign)

        async def is_rejected():
            return await conditions(c, made.key) == {
                "NamesAccepted": ("False", "GroupReserved"),
                "Established": ("False", "NotAccepted"),
                "KubernetesAPIApprovalPolicyConformant": ("False", "UnapprovedAnnotation"),
            }

        await c.until(is_rejected)
        before = await c.client.get(CustomResourceDefinition, made.key.name)
        yes = [{"type": "Established", "status": "True"}]
        names = {"plural": "herds", "kind": "Herd"}
        status = {"conditions": yes, "acceptedNames": names}
        change = {"metadata": {"resourceVersion": before.metadata.resource_version}}
        await c.client.patch(
            CustomResourceDefinition, made.key, change | {"status": status}, subresource="status"
        )
        for path in (f"/apis/{group}", f"/apis/{group}/v1"):
            answer = await c.server.handle(Request(method="GET", path=path, user=ADMINISTRATOR))
            assert b"herds" not in answer.body
        herds = Request(method="GET", path=f"/apis/{group}/v1/herds", user=ADMINISTRATOR)
        assert (await c.server.handle(herds)).status == 404
        await c.until(is_rejected)
        await c.client.delete(CustomResourceDefinition, made.key)
        await gone(c, CustomResourceDefinition, made.key)


async def test_the_api_approval_of_a_k8s_io_group_is_reported():
    async with cluster(about_itself=True) as c:
        approved = definition()
        where = "https://github.com/kubernetes/enhancements/pull/1"
        approved["metadata"] = {
            "name": "herds.farm.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": where},
        }
        approved["spec"]["group"] = "farm.x-k8s.io"
        other = copy.deepcopy(approved)
        other["metadata"]["name"] = "herds.farm.k8s.io"
        other["spec"]["group"] = "farm.k8s.io"
        for document, expected in ((approved, None), (other, ("True", "ApprovedAnnotation"))):
            made = await c.client.create(CustomResourceDefinition, document)

            async def is_established(key=made.key):
                return (await conditions(c, key)).get("Established", "")[0:1] == ("True",)

            await c.until(is_established)
            found = await conditions(c, made.key)
            assert found.get("KubernetesAPIApprovalPolicyConformant") == expected


async def test_custom_objects_are_deleted_with_their_namespace():
    async with cluster(about_itself=True) as c:
        await brought(c)
        await c.client.create(Namespace, {"metadata": {"name": "meadow"}})
        await c.client.create(Partial, herd(namespace="meadow"), kind=HERD)
        await c.client.delete(Namespace, Key("", "meadow"))
        await gone(c, Namespace, Key("", "meadow"))
        assert (await c.client.list(Partial, kind=HERD)).items == []


async def test_garbage_is_collected_across_custom_kinds():
    async with cluster(about_itself=True) as c:
        await brought(c)
        owner = await c.client.create(Partial, herd(), kind=HERD)
        reference = {
            "apiVersion": "farm.example.com/v1",
            "kind": "Herd",
            "name": "cows",
            "uid": owner.metadata.uid,
        }
        dependent = {
            "metadata": {"name": "log", "namespace": "default", "ownerReferences": [reference]}
        }
        await c.client.create(ConfigMap, dependent)
        await c.client.create(Partial, herd("calves", ownerReferences=[reference]), kind=HERD)
        await c.client.delete(Partial, Key("default", "cows"), kind=HERD)
        await gone(c, ConfigMap, Key("default", "log"))
        await gone(c, Partial, Key("default", "calves"), HERD)


async def test_a_watch_ends_with_its_kind():
    async with cluster(about_itself=True) as c:
        await brought(c)
        version = (await c.client.list(Partial, kind=HERD)).resource_version
        await c.client.delete(CustomResourceDefinition, NAME)
        watch = c.client.watch(Partial, resource_version=version, kind=HERD, timeout_seconds=300)
        async with asyncio.timeout(60), aclosing(watch) as events:
            assert [type(event) async for event in events] == [Bookmark]
        await gone(c, CustomResourceDefinition, NAME)


async def test_a_watch_ends_when_the_schema_changes():
    """A watch of a version would otherwise send objects in one that did not exist when it began."""
    async with cluster(about_itself=True) as c:
        await brought(c)
        version = (await c.client.list(Partial, kind=HERD)).resource_version
        watch = c.client.watch(Partial, resource_version=version, kind=HERD, timeout_seconds=300)
        async with asyncio.timeout(60), aclosing(watch) as events:
            labels = {"metadata": {"labels": {"colour": "brown"}}}
            change = asyncio.ensure_future(anext(events))
            await c.client.patch(CustomResourceDefinition, NAME, labels)
            await c.client.create(Partial, herd("sheep"), kind=HERD)
            assert (await change).object.metadata.name == "sheep"
            await c.client.patch(CustomResourceDefinition, NAME, {"spec": second_version()})
            unseen = await c.client.create(Partial, herd(), kind=HERD)
            [bookmark] = [event async for event in events]
        assert isinstance(bookmark, Bookmark)
        assert int(bookmark.resource_version) < int(unseen.metadata.resource_version)


def second_version(stored=True):
    (version,) = definition()["spec"]["versions"]
    return {
        "versions": [version | {"storage": not stored}, version | {"name": "v2", "storage": stored}]
    }


async def generation(c):
    found = await c.client.get(CustomObject, "cows", "default", kind=HERD)
    return found.metadata.generation


async def test_a_write_in_another_version_does_not_change_the_generation():
    async with cluster(about_itself=True) as c:
        await brought(c)
        first = await c.client.create(Partial, herd(), kind=HERD)
        await c.client.patch(CustomResourceDefinition, NAME, {"spec": second_version()})
        labels = {"metadata": {"labels": {"colour": "brown"}}}
        moved = await c.client.patch(Partial, key_of(first), labels, kind=HERD)
        assert await generation(c) == 1
        assert moved.metadata.resource_version != first.metadata.resource_version


MACHINES = Key("", "virtualmachines.kubevirt.io")


async def built_in(c):
    async def is_there():
        try:
            return (await conditions(c, MACHINES)).get("Established", ("",))[0] == "True"
        except NotFound:
            return False

    await c.until(is_there)


async def test_definitions_of_kubevirts_kinds_cannot_be_changed():
    async with cluster(about_itself=True) as c:
        await built_in(c)
        found = await c.client.get(CustomResourceDefinition, MACHINES.name)
        assert [version.name for version in found.spec.versions] == ["v1", "v1alpha3"]
        with pytest.raises(Forbidden, match="a built-in kind of corral, and cannot be deleted"):
            await c.client.delete(CustomResourceDefinition, MACHINES)
        change = {"spec": {"names": {"shortNames": ["mine"]}}}
        with pytest.raises(Invalid, match="cannot be changed"):
            await c.client.patch(CustomResourceDefinition, MACHINES, change)
        rival = definition("others", "Other")
        rival["metadata"]["annotations"] = {"corral.dev/built-in": "true"}
        with pytest.raises(Invalid, match="cannot be changed"):
            await c.client.create(CustomResourceDefinition, rival)


async def test_the_catalog_is_updated_after_an_upgrade():
    async with cluster(about_itself=True) as c:
        await built_in(c)
        await c.crash_loops()
        loop = Client(InProcess(c.server.handle, STAND_IN))
        old = {"spec": {"names": {"shortNames": ["old"]}}}
        await loop.patch(CustomResourceDefinition, MACHINES, old)
        c.start_loops()

        async def is_repaired():
            found = await c.client.get(CustomResourceDefinition, MACHINES.name)
            return found.spec.names.short_names == ["vm", "vms"]

        await c.until(is_repaired)


async def test_each_served_group_version_has_an_api_service():
    async with cluster(about_itself=True) as c:

        async def services():
            items = (await c.client.list(APIService)).items
            return {
                item.metadata.name: item.status.conditions[0].reason
                for item in items
                if item.status and item.status.conditions
            }

        async def is_reported():
            return {"v1.", "v1.kubevirt.io", "v1.farm.example.com"} <= (await services()).keys()

        await brought(c)
        await c.until(is_reported)
        assert set((await services()).values()) == {"Local"}
        await c.client.delete(CustomResourceDefinition, NAME)

        async def is_gone():
            return "v1.farm.example.com" not in await services()

        await c.until(is_gone)
        remote = {
            "metadata": {"name": "v1.other.example.com"},
            "spec": {
                "group": "other.example.com",
                "version": "v1",
                "groupPriorityMinimum": 1,
                "versionPriority": 1,
                "service": {"namespace": "default", "name": "other"},
            },
        }
        with pytest.raises(Invalid, match="asks no other server"):
            await c.client.create(APIService, remote)
