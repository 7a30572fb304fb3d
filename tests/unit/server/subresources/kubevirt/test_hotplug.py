"""addvolume and removevolume: what is refused, in KubeVirt's words, and what is noted."""

import pytest
from tests.unit.server.conftest import VMS

from corral.api.object import Key

GROUP = "/apis/subresources.kubevirt.io/{}/namespaces/default/{}/vm/{}"
STORED = "virtualmachineinstances.kubevirt.io"
CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
PLUGGED = {"name": "data", "dataVolume": {"name": "dv", "hotpluggable": True}}
SCSI = {"name": "data", "disk": {"bus": "scsi"}}
ROOT = {"name": "root", "containerDisk": {"image": "demo"}}
ROOT_DISK = {"name": "root", "disk": {"bus": "virtio"}}


def path(sub, plural="virtualmachineinstances", version="v1"):
    return GROUP.format(version, plural, sub)


def adding(name="data", device=None, source=None, **fields):
    disk = {**(device or {"disk": {"bus": "scsi"}}), **fields}
    return {"name": name, "disk": disk, "volumeSource": source or CLAIM}


def spec(machine, volumes, disks, **devices):
    machine["spec"]["volumes"] = [ROOT, *volumes]
    machine["spec"]["domain"]["devices"] = {"disks": [ROOT_DISK, *disks], **devices}
    return machine["spec"]


@pytest.fixture
def run(ask, machine):
    """Stores a machine that runs."""

    async def run(*volumes, disks=(), phase="Running", **devices):
        machine["metadata"] |= {"namespace": "default", "uid": "uid-1"}
        spec(machine, volumes, disks, **devices)
        machine["status"] = {"phase": phase, "nodeName": "one"}
        await ask.server.store.write(STORED, Key("default", "vm"), machine)

    return run


@pytest.fixture
def keep(ask, machine):
    """Stores a VirtualMachine."""

    async def keep(*volumes, disks=(), **devices):
        template = {"spec": spec(machine, volumes, disks, **devices)}
        body = {"metadata": {"name": "vm"}, "spec": {"runStrategy": "Halted", "template": template}}
        made = await ask("POST", VMS, body)
        assert made.status == 201, made.text

    return keep


async def stored(ask):
    return (await ask("GET", "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"))[
        "spec"
    ]


async def requests(ask):
    return (await ask("GET", f"{VMS}/vm")).document.get("status", {}).get("volumeRequests")


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
async def test_a_volume_is_added_to_a_running_vmi_and_removed(ask, run, version):
    await run()
    added = await ask("PUT", path("addvolume", version=version), adding(serial="x"))
    assert (added.status, added.text) == (202, "")
    spec = await stored(ask)
    assert spec["volumes"][1] == {
        "name": "data",
        "persistentVolumeClaim": {"claimName": "data", "hotpluggable": True},
    }
    assert spec["domain"]["devices"]["disks"][1] == {**SCSI, "serial": "x"}
    assert (await ask("PUT", path("removevolume"), {"name": "data"})).status == 202
    spec = await stored(ask)
    assert [volume["name"] for volume in spec["volumes"]] == ["root"]
    assert [disk["name"] for disk in spec["domain"]["devices"]["disks"]] == ["root"]


async def test_a_volume_can_be_removed_by_the_name_of_its_claim(ask, run):
    await run(PLUGGED, disks=[SCSI])
    assert (await ask("PUT", path("removevolume"), {"name": "dv"})).status == 202
    assert len((await stored(ask))["volumes"]) == 1


async def test_a_dry_run_changes_nothing(ask, run, keep):
    await run()
    await keep()
    before = await stored(ask)
    for plural in ("virtualmachineinstances", "virtualmachines"):
        body = {**adding(), "dryRun": ["All"]}
        assert (await ask("PUT", path("addvolume", plural), body)).status == 202
    assert await stored(ask) == before
    assert await requests(ask) is None


@pytest.mark.parametrize("plural", ["virtualmachineinstances", "virtualmachines"])
@pytest.mark.parametrize(
    ("sub", "body", "message"),
    [
        ("addvolume", None, "Request with no body, a new name is expected as the request body"),
        ("addvolume", {}, "AddVolumeOptions requires name to be set"),
        ("addvolume", {"name": "a"}, "AddVolumeOptions requires disk to not be nil"),
        (
            "addvolume",
            {"name": "a", "disk": {}},
            "AddVolumeOptions requires VolumeSource to not be nil",
        ),
        ("removevolume", {}, "RemoveVolumeOptions requires name to be set"),
        ("removevolume", b"[", "Can not unmarshal Request body to struct, error: "),
        ("addvolume", b'{"name": 3}', "Can not unmarshal Request body to struct, error: "),
    ],
)
async def test_incomplete_options_are_rejected(ask, run, keep, plural, sub, body, message):
    await run()
    await keep()
    refused = await ask("PUT", path(sub, plural), body)
    assert (refused.status, refused["reason"]) == (400, "BadRequest")
    assert refused["message"].startswith(message)


@pytest.mark.parametrize("plural", ["virtualmachineinstances", "virtualmachines"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            adding(device={"cdrom": {"bus": "sata"}}),
            "[data] requires diskDevice of type 'disk' or 'lun' to be used.",
        ),
        (
            adding(device={"disk": {"bus": "sata"}}),
            "disk [data] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted.",
        ),
        (
            adding(device={"lun": {"bus": "virtio"}}),
            "LUN [data] requires bus to be 'scsi'. [virtio] is not permitted.",
        ),
        (adding(dedicatedIOThread=True), "[data] requires virtio bus for IOThreads."),
        (adding(source={"emptyDisk": {"capacity": "1Gi"}}), "must have exactly one of"),
        (adding(source={**CLAIM, "dataVolume": {"name": "d"}}), "must have exactly one of"),
        (adding(cache="always"), "has invalid value always"),
        (adding("Not_A_Label"), "a lowercase RFC 1123 label"),
        (adding(bootOrder=0), "must have a boot order > 0"),
        (adding(serial=3), "disk: Expected `str`, got `int`"),
    ],
)
async def test_disks_that_cannot_be_hotplugged_are_rejected(ask, run, keep, plural, body, message):
    await run()
    await keep()
    refused = await ask("PUT", path("addvolume", plural), body)
    assert refused.status == 422, refused.text
    assert message in refused["message"]
    assert len((await stored(ask))["volumes"]) == 1
    assert await requests(ask) is None


@pytest.mark.parametrize("plural", ["virtualmachineinstances", "virtualmachines"])
@pytest.mark.parametrize(
    ("sub", "body", "message"),
    [
        (
            "addvolume",
            adding(),
            "Unable to add volume [data] because volume with that name already exists",
        ),
        (
            "addvolume",
            adding("other", source={"dataVolume": {"name": "dv"}}),
            "Unable to add volume source [dv] because it already exists",
        ),
        ("removevolume", {"name": "x"}, "Unable to remove volume [x] because it does not exist"),
        (
            "removevolume",
            {"name": "root"},
            "Unable to remove volume [root] because it is not hotpluggable",
        ),
    ],
)
async def test_conflicting_volumes_are_rejected(ask, run, keep, plural, sub, body, message):
    await run(PLUGGED, disks=[SCSI])
    await keep(PLUGGED, disks=[SCSI])
    refused = await ask("PUT", path(sub, plural), body)
    assert (refused.status, refused["reason"]) == (409, "Conflict")
    named = plural.removesuffix("s")
    assert refused["message"] == (
        f'Operation cannot be fulfilled on {named}.kubevirt.io "vm": {message}'
    )


async def test_a_vmi_that_does_not_run_gets_no_volumes(ask, run):
    await run(phase="Scheduled")
    refused = await ask("PUT", path("addvolume"), adding())
    assert (refused.status, refused["message"].rpartition(": ")[2]) == (409, "VMI is not running")


@pytest.mark.parametrize("plural", ["virtualmachineinstances", "virtualmachines"])
async def test_a_vmi_with_hotplug_disabled_gets_no_volumes(ask, run, keep, plural):
    await run(disableHotplug=True)
    await keep(disableHotplug=True)
    refused = await ask("PUT", path("addvolume", plural), adding())
    assert refused.status == 409
    assert "disableHotplug is set" in refused["message"]


@pytest.mark.parametrize("plural", ["virtualmachineinstances", "virtualmachines"])
async def test_a_missing_vmi_is_named_in_the_singular(ask, plural):
    refused = await ask("PUT", path("addvolume", plural), adding())
    assert refused.status == 404
    assert refused["message"] == f'{plural.removesuffix("s")}.kubevirt.io "vm" not found'


async def test_volume_requests_are_in_the_status_of_the_vm(ask, keep):
    await keep()
    vms = "virtualmachines"
    assert (await ask("PUT", path("addvolume", vms), adding())).status == 202
    [noted] = await requests(ask)
    assert noted["addVolumeOptions"]["volumeSource"]["persistentVolumeClaim"]["hotpluggable"]
    assert noted["addVolumeOptions"]["disk"] == SCSI
    again = await ask("PUT", path("addvolume", vms), adding())
    assert again.status == 409
    assert again["message"].endswith("add volume request for volume [data] already exists")


async def test_a_request_to_remove_replaces_the_request_to_add(ask, keep):
    await keep(PLUGGED, disks=[SCSI])
    vms = "virtualmachines"
    assert (await ask("PUT", path("removevolume", vms), {"name": "data"})).status == 202
    assert await requests(ask) == [{"removeVolumeOptions": {"name": "data"}}]
    again = await ask("PUT", path("removevolume", vms), {"name": "data"})
    assert "a remove volume request for volume [data] already exists" in again["message"]


async def test_a_vmi_owned_by_a_vm_is_rejected(ask, run, machine):
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-1"}
    machine["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    await run()
    refused = await ask("PUT", path("addvolume"), adding())
    assert refused.status == 409
    assert "VirtualMachine vm owns it" in refused["message"]
    assert len((await stored(ask))["volumes"]) == 1


async def test_a_request_is_validated_with_pending_ones(ask, keep):
    await keep()
    vms = "virtualmachines"
    assert (await ask("PUT", path("addvolume", vms), adding(bootOrder=1))).status == 202
    other = {"persistentVolumeClaim": {"claimName": "other"}}
    request = adding("other", source=other, bootOrder=1)
    refused = await ask("PUT", path("addvolume", vms), request)
    assert refused.status == 422, refused.text
    same = await ask("PUT", path("addvolume", vms), adding("again"))
    assert same["message"].endswith("Unable to add volume source [data] because it already exists")
    assert len(await requests(ask)) == 1


async def test_a_pending_request_can_be_withdrawn(ask, keep):
    await keep()
    vms = "virtualmachines"
    assert (await ask("PUT", path("addvolume", vms), adding())).status == 202
    assert (await ask("PUT", path("removevolume", vms), {"name": "data"})).status == 202
    assert await requests(ask) == [{"removeVolumeOptions": {"name": "data"}}]


async def test_users_without_the_right_are_forbidden(ask, run):
    await run()
    stranger = ask.as_user("stranger")
    assert (await stranger("PUT", path("addvolume"), adding())).status == 403
    assert (await ask("GET", path("addvolume"))).status == 405
