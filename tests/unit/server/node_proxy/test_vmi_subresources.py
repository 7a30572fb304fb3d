"""What one does with machines: refused in KubeVirt's words, or led to the machine's node."""

import pytest

from corral.api.errors import BadRequest
from corral.api.object import Key
from corral.server.node_proxy.forwarding import Forward
from corral.server.node_proxy.vmi_subresources import SUBRESOURCES, duration_seconds

DOOR = "/apis/subresources.kubevirt.io/{}/namespaces/default/virtualmachineinstances/vm/{}"
UPGRADE = {"upgrade": "websocket", "connection": "upgrade"}
CONFLICT = 'Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "vm": '
PAUSED = {"conditions": [{"type": "Paused", "status": "True"}]}
AGENT = {"conditions": [{"type": "AgentConnected", "status": "True"}]}
ADDRESS = {"interfaces": [{"ipAddress": "10.244.0.2"}]}


def path(sub, version="v1"):
    return DOOR.format(version, sub)


@pytest.fixture
def store_machine(ask, machine):
    """Stores a machine as it is when it runs on a node."""

    async def store(*statuses, phase="Running", **spec):
        machine["metadata"] |= {"namespace": "default", "uid": "uid-1"}
        machine["spec"] |= spec
        machine["status"] = {"phase": phase, "nodeName": "one"}
        for status in statuses:
            machine["status"] |= status
        stored = "virtualmachineinstances.kubevirt.io"
        await ask.server.store.write(stored, Key("default", "vm"), machine)

    ask.server.subresources.nodes = lambda name: f"the agent of {name}"
    return store


async def forwarded_path(ask, method, sub, body=None, headers=None):
    """Where a request is forwarded, with its query."""
    response = await ask.raw(method, path(sub), body, headers)
    assert isinstance(response, Forward), response.body
    assert response.app == "the agent of one"
    query = f"?{response.query}" if response.query else ""
    return response.path + query


@pytest.mark.parametrize("version", ["v1", "v1alpha3"])
async def test_both_versions_are_forwarded_to_the_node(ask, store_machine, version):
    await store_machine()
    response = await ask.raw("PUT", path("reset", version))
    assert isinstance(response, Forward)
    assert (await ask("PUT", path("reset", "v2"))).status == 404


async def test_streams_are_forwarded_to_the_node(ask, store_machine):
    await store_machine(ADDRESS)
    for sub, there in (
        ("console", "/console/default/vm/uid-1"),
        ("vnc", "/vnc/default/vm/uid-1"),
        ("portforward/22", "/portforward/default/vm/uid-1/22/tcp"),
        ("portforward/22/tcp", "/portforward/default/vm/uid-1/22/tcp"),
        ("portforward/53/udp", "/portforward/default/vm/uid-1/53/udp"),
        ("vnc?preserveSession=true&x=y", "/vnc/default/vm/uid-1?preserveSession=true"),
    ):
        assert await forwarded_path(ask, "GET", sub, headers=UPGRADE) == there
        plain = await ask("GET", path(sub))
        assert (plain.status, plain["reason"]) == (400, "BadRequest")


async def test_reads_and_actions_are_forwarded_to_the_node(ask, store_machine):
    await store_machine(AGENT)
    for sub in ("guestosinfo", "userlist", "filesystemlist"):
        assert await forwarded_path(ask, "GET", sub) == f"/{sub}/default/vm/uid-1"
    for sub in ("pause", "unfreeze", "softreboot", "reset"):
        assert await forwarded_path(ask, "PUT", sub) == f"/{sub}/default/vm/uid-1"
        assert (await ask("GET", path(sub))).status == 405
    shot = "/vnc/screenshot/default/vm/uid-1"
    assert await forwarded_path(ask, "GET", "vnc/screenshot") == shot
    assert (
        await forwarded_path(ask, "GET", "vnc/screenshot?moveCursor=true")
        == f"{shot}?moveCursor=true"
    )
    await store_machine(PAUSED)
    assert await forwarded_path(ask, "PUT", "unpause") == "/unpause/default/vm/uid-1"


@pytest.mark.parametrize(
    ("method", "sub", "status", "code", "message"),
    [
        ("GET", "vnc", {"phase": "Scheduling"}, 400, "VMI is not running"),
        ("GET", "vnc", {"phase": "Failed"}, 409, CONFLICT + "VMI is in failed status"),
        ("GET", "portforward/22", {"phase": "Scheduled"}, 400, "VMI is not running"),
        ("GET", "portforward/22", PAUSED | ADDRESS, 409, CONFLICT + "VMI is paused"),
        ("GET", "portforward/22", {}, 400, "no network interfaces are present"),
        ("PUT", "pause", {"phase": "Scheduled"}, 409, CONFLICT + "VMI is not running"),
        ("PUT", "pause", PAUSED, 409, CONFLICT + "VMI is already paused"),
        ("PUT", "unpause", {}, 409, CONFLICT + "VMI is not paused"),
        ("PUT", "freeze", {"phase": "Pending"}, 409, CONFLICT + "VMI is not running"),
        ("PUT", "softreboot", PAUSED, 409, CONFLICT + "VMI is paused"),
        ("PUT", "reset", {"phase": "Succeeded"}, 409, CONFLICT + "VMI is not running"),
    ],
)
async def test_requests_that_cannot_work_are_rejected(
    ask, store_machine, method, sub, status, code, message
):
    await store_machine(status)
    refused = await ask(method, path(sub), headers=UPGRADE)
    assert (refused.status, refused["message"]) == (code, message)
    assert refused["kind"] == "Status"


async def test_a_missing_vmi_has_kubevirts_error(ask):
    missing = await ask("PUT", path("pause"))
    assert (missing.status, missing["reason"]) == (404, "NotFound")
    assert missing["message"] == 'virtualmachineinstance.kubevirt.io "vm" not found'
    assert missing["details"]["kind"] == "virtualmachineinstance"


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Scheduled"}, "VMI is not running"),
        ({}, "VMI does not have guest agent connected"),
        ({"conditions": [*AGENT["conditions"], *PAUSED["conditions"]]}, "VMI is paused"),
    ],
)
async def test_errors_of_guest_information_are_plain_text(ask, store_machine, status, why):
    """As KubeVirt does, with a code that says the server failed."""
    await store_machine(status)
    refused = await ask("GET", path("guestosinfo"))
    assert (refused.status, refused.document, refused.text) == (500, None, CONFLICT + why)


async def test_missing_devices_are_rejected(ask, store_machine):
    devices = {"autoattachGraphicsDevice": False}
    await store_machine(domain={"devices": devices, "features": {"acpi": {"enabled": False}}})
    for sub in ("vnc", "vnc/screenshot"):
        refused = await ask("GET", path(sub), headers=UPGRADE)
        assert (refused.status, refused["message"]) == (400, "No graphics devices are present.")
    refused = await ask("PUT", path("softreboot"))
    neither = "VMI neither have the agent connected nor the ACPI feature enabled"
    assert (refused.status, refused["message"]) == (409, CONFLICT + neither)


async def test_a_vmi_with_a_liveness_probe_cannot_be_paused(ask, store_machine):
    await store_machine(livenessProbe={"guestAgentPing": {}})
    refused = await ask("PUT", path("pause"))
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert "LivenessProbe" in refused["message"]


@pytest.mark.parametrize("sub", ["portforward/0", "portforward/x", "portforward/70000",
                                 "portforward/22/sctp", "portforward/²",
                                 "portforward/00000000199999"])  # fmt: skip
async def test_invalid_ports_are_rejected(ask, store_machine, sub):
    await store_machine(ADDRESS)
    assert (await ask("GET", path(sub), headers=UPGRADE)).status == 400


async def test_a_dry_run_does_nothing(ask, store_machine):
    await store_machine()
    done = await ask("PUT", path("pause"), {"dryRun": ["All"]})
    assert (done.status, done.text) == (200, "")
    refused = await ask("PUT", path("unpause"), {"dryRun": ["All"]})
    assert refused.status == 409


async def test_a_freeze_can_have_a_timeout(ask, store_machine):
    await store_machine()
    there = "/freeze/default/vm/uid-1"
    assert await forwarded_path(ask, "PUT", "freeze") == there
    assert await forwarded_path(ask, "PUT", "freeze", {"unfreezeTimeout": "5m0s"}) == (
        f"{there}?seconds=300.0"
    )
    soon = await forwarded_path(ask, "PUT", "freeze", {"unfreezeTimeout": "100us"})
    assert float(soon.removeprefix(f"{there}?seconds=")) == pytest.approx(1e-4)
    for body in ({"dryRun": 5}, {"unfreezeTimeout": "soon"}, {"unfreezeTimeout": 5}, b"{", b"[]"):
        assert (await ask("PUT", path("freeze"), body)).status == 400


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m0s", 300), ("1h30m", 5400), ("1.5s", 1.5), ("250ms", 0.25)]
)
def test_durations_are_those_of_go(text, seconds):
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "-5s", "m5", "1" * 40 + "s"])
def test_invalid_durations_are_rejected(text):
    with pytest.raises(BadRequest):
        duration_seconds(text)


async def test_every_subresource_responds(ask, store_machine):
    """Also those that do not open: with a reason, not with nothing."""
    await store_machine(ADDRESS)
    for name, subresource in SUBRESOURCES.items():
        sub = f"{name}/22" if name == "portforward" else name
        method = {"get": "GET", "update": "PUT"}[subresource.verb]
        response = await ask.raw(method, path(sub), headers=UPGRADE)
        if not isinstance(response, Forward):
            assert response.status in (400, 409, 500), name
            assert response.body


async def test_the_forbidden_error_names_the_group_of_subresources(ask, store_machine):
    await store_machine()
    stranger = ask.as_user("stranger")
    refused = await stranger("PUT", path("pause"))
    assert refused.status == 403
    assert (
        'cannot update resource "virtualmachineinstances/pause" in API group '
        '"subresources.kubevirt.io"' in refused["message"]
    )


async def test_other_kinds_have_no_such_subresources(ask, store_machine):
    await store_machine(ADDRESS)
    base = "/apis/subresources.kubevirt.io/v1/namespaces/default"
    for where in ("virtualmachines/vm/start", "virtualmachineinstancereplicasets/web/pause"):
        assert (await ask("PUT", f"{base}/{where}")).status == 404
    assert (await ask("PUT", path("nosuch"))).status == 404
    assert (await ask("GET", path("portforward"), headers=UPGRADE)).status == 404
