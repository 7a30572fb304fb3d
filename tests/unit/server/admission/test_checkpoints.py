"""Checkpoints that new VMIs, and templates of sets, name."""

import pytest

VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
SETS = VMIS.removesuffix("s") + "replicasets"
CHECKPOINTS = "/apis/corral.dev/v1alpha1/namespaces/default/virtualmachinecheckpoints"
SPEC = {"domain": {"devices": {}, "memory": {"guest": "64M"}}}
FROM, ON, IDENTITY = (f"corral.dev/{each}" for each in ("start-from", "start-on", "identity"))
UID = "8f6b2d9e-1d4c-4c5c-9d2f-0a1b2c3d4e5f"


async def checkpoint(ask, *, status=None):
    spec = {"source": {"kind": "VirtualMachineInstance", "name": "source"}}
    await ask.create(CHECKPOINTS, "base", spec=spec)
    if status:
        assert (await ask.patch(f"{CHECKPOINTS}/base/status", {"status": status})).status == 200


def condition(type_):
    return {"conditions": [{"type": type_, "status": "True"}]}


async def vmi(ask, **annotations):
    metadata = {"name": "fork", "annotations": {FROM: "base", **annotations}}
    return await ask("POST", VMIS, {"metadata": metadata, "spec": SPEC})


def start(answer):
    annotations = answer["metadata"]["annotations"]
    return annotations.get(ON), annotations.get(IDENTITY)


async def test_node_and_identity_are_those_of_the_checkpoint(ask):
    await checkpoint(ask, status={"nodeName": "n1", "identity": UID, **condition("Ready")})
    answer = await vmi(ask)
    assert (answer.status, start(answer), answer.warnings) == (201, ("n1", UID), [])


async def test_devices_have_the_queues_of_the_checkpoint(ask):
    await checkpoint(ask, status={"nodeName": "n1", "identity": UID, "bootSockets": 2})
    answer = await vmi(ask)
    assert answer["metadata"]["annotations"]["corral.dev/boot-sockets"] == "2"


async def test_the_identity_of_a_checkpoint_that_is_made_is_that_of_its_source(ask):
    source = await ask.create(VMIS, "source", spec=SPEC)
    uid = source["metadata"]["uid"]
    await checkpoint(ask, status={"nodeName": "n1", "sourceUID": uid})
    assert start(await vmi(ask)) == ("n1", uid)


async def test_a_checkpoint_that_is_on_no_node_yet_says_nothing(ask):
    await checkpoint(ask)
    assert start(await vmi(ask)) == (None, None)


async def test_what_the_user_sets_stays(ask):
    await checkpoint(ask, status={"nodeName": "n1", "identity": UID, **condition("Ready")})
    assert start(await vmi(ask, **{ON: "n2", IDENTITY: UID.upper()})) == ("n2", UID.upper())


@pytest.mark.parametrize("status", [None, {"nodeName": "n1", **condition("Failed")}])
async def test_a_vmi_that_will_boot_is_created_with_a_warning(ask, status):
    if status:
        await checkpoint(ask, status=status)
    answer = await vmi(ask)
    assert (answer.status, start(answer)) == (201, (None, None))
    assert "metadata.annotations[corral.dev/start-from]" in answer.warnings[0]
    assert answer.warnings[0].endswith('the guest boots"')


@pytest.mark.parametrize(
    ("annotations", "field", "why"),
    [
        ({FROM: "../base"}, FROM, "a lowercase RFC 1123 subdomain"),
        ({ON: "a b"}, ON, "a lowercase RFC 1123 subdomain"),
        ({FROM: "other", IDENTITY: "me"}, IDENTITY, "must be the UUID of a VMI"),
        ({IDENTITY: UID.replace("8", "9", 1)}, IDENTITY, f'that of checkpoint "base", {UID}'),
    ],
)
async def test_a_wrong_annotation_is_refused_with_its_path(ask, annotations, field, why):
    await checkpoint(ask, status={"nodeName": "n1", "identity": UID, **condition("Ready")})
    answer = await vmi(ask, **annotations)
    assert answer.status == 422
    assert f"metadata.annotations[{field}]: Invalid value" in answer["message"]
    assert why in answer["message"]
    assert [each["field"] for each in answer["details"]["causes"]] == [
        f"metadata.annotations[{field}]"
    ]


async def test_a_template_of_a_set_is_checked_as_its_members_are(ask):
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels, "annotations": {FROM: "Base"}}, "spec": SPEC}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    answer = await ask("POST", SETS, {"metadata": {"name": "set"}, "spec": spec})
    assert answer.status == 422
    assert "spec.template.metadata.annotations[corral.dev/start-from]" in answer["message"]
