"""Facts as an instance and its pod show them."""

from dataclasses import replace

import msgspec
import pytest
from lightkube.models.core_v1 import Container, Pod, PodStatus

from corral.api.kinds.core.pod import ready
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.vmi.addresses import mac
from corral.api.kinds.vmi.domain import Cpu, Memory
from corral.api.kinds.vmi.fork_state import FORKED, PENDING, RENEWED, SHARED
from corral.api.kinds.vmi.networks import Bridge
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.schema import schema_for
from corral.node.hypervisor import Change, GuestInfo, GuestInterface, GuestSize
from corral.node.state.facts import Facts, ForkState, State, Trouble, fold
from corral.node.status.pod_status import differs, pod_status
from corral.node.status.vmi_status import instance_status

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"
UID = "0b7d6a4e-5a3f-4f3c-9d55-0c1f6f0a1b2c"
RUNNING = Facts(state=State.RUNNING)
SUCCEEDED = fold(fold(RUNNING, Change.POWERED_OFF), Change.GONE)
FAILED = fold(RUNNING, Change.GONE)
NO_IMAGE = Trouble(reason="ErrImagePull", message="no such image", volume="root")
NO_QEMU = Trouble(reason="QemuNotFound", message="QEMU is not installed")


def pod(status=None, resources=None) -> Pod:
    containers = [
        {"name": "compute", "image": "corral", "resources": resources or {}},
        {"name": "volumeroot", "image": "cirros"},
    ]
    return msgspec.convert(
        {"metadata": {"name": "p"}, "spec": {"containers": containers}, "status": status or {}}, Pod
    )


def a_pod(*, ready: bool = True) -> Pod:
    return pod({"conditions": [{"type": "Ready", "status": str(ready)}]})


def vmi(phase="Scheduled", **status) -> VirtualMachineInstance:
    document = {
        "metadata": {"name": "vm", "namespace": "default", "uid": UID},
        "spec": {
            "domain": {
                "machine": {"type": "q35"},
                "memory": {"guest": "64Mi"},
                "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            },
            "networks": [{"name": "default", "pod": {}}],
        },
        "status": {"phase": phase, **status},
    }
    return msgspec.convert(document, VirtualMachineInstance)


def condition(status, name):
    return next(one for one in status["conditions"] if one["type"] == name)


@pytest.mark.parametrize(
    ("facts", "phase", "state", "ready"),
    [
        (Facts(), "Pending", {"waiting": {"reason": "ContainerCreating"}}, "False"),
        (RUNNING, "Running", {"running": {"startedAt": NOW}}, "True"),
        (
            Facts(state=State.STARTING),
            "Pending",
            {"waiting": {"reason": "ContainerCreating"}},
            "False",
        ),
    ],
)
def test_the_status_of_a_pod_follows_its_machine(facts, phase, state, ready):
    status = pod_status(facts, pod(), "192.0.2.1", NOW)
    assert status["phase"] == phase
    assert status["containerStatuses"][0]["state"] == state
    assert condition(status, "Ready")["status"] == ready
    assert condition(status, "ContainersReady")["status"] == ready
    assert ("podIP" in status) == (phase == "Running")


@pytest.mark.parametrize(
    ("facts", "phase", "code"), [(SUCCEEDED, "Succeeded", 0), (FAILED, "Failed", 1)]
)
def test_the_status_of_a_pod_has_the_end_of_its_machine(facts, phase, code):
    before = pod(pod_status(RUNNING, pod(), "192.0.2.1", NOW))
    status = pod_status(facts, before, "192.0.2.1", LATER)
    assert status["phase"] == phase
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == code
    assert terminated["startedAt"] == NOW
    assert terminated["finishedAt"] == LATER
    assert condition(status, "Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready",
        "status": "False",
        "reason": "PodCompleted",
        "lastTransitionTime": "",
    }


def test_an_oom_kill_is_in_the_status_of_the_compute_container():
    facts = replace(FAILED, out_of_memory=True)
    before = pod(pod_status(RUNNING, pod(), "192.0.2.1", NOW))
    states = pod_status(facts, before, "192.0.2.1", LATER)["containerStatuses"]
    ended = {one["name"]: one["state"]["terminated"] for one in states}
    assert (ended["compute"]["reason"], ended["compute"]["exitCode"]) == ("OOMKilled", 137)
    others = [one for name, one in ended.items() if name != "compute"]
    assert {(one["reason"], one["message"]) for one in others} == {("Error", "")}


def test_an_unchanged_pod_status_is_not_written():
    written = pod(pod_status(RUNNING, pod(), "192.0.2.1", NOW))
    assert not differs(pod_status(RUNNING, written, "192.0.2.1", LATER), written)
    assert differs(pod_status(SUCCEEDED, written, "192.0.2.1", LATER), written)


def test_conditions_of_others_stay():
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW}
    status = pod_status(RUNNING, pod({"conditions": [scheduled]}), "192.0.2.1", LATER)
    assert condition(status, "PodScheduled") == scheduled


def test_errors_of_a_volume_are_in_its_volume_status():
    status = pod_status(Facts(trouble=NO_IMAGE), pod(), "192.0.2.1", NOW)
    waiting = {"reason": "ErrImagePull", "message": "no such image"}
    assert [one["state"]["waiting"] for one in status["containerStatuses"]] == [waiting, waiting]
    other = Trouble(reason="FailedMount", message="no", volume="data")
    status = pod_status(Facts(trouble=other), pod(), "192.0.2.1", NOW)
    reasons = [one["state"]["waiting"]["reason"] for one in status["containerStatuses"]]
    assert reasons == ["FailedMount", "ContainerCreating"]


def test_a_sidecar_runs_as_long_as_its_machine():
    placed = pod()
    log = {"name": "guest-console-log", "image": "corral", "restartPolicy": "Always"}
    placed.spec.initContainers = [msgspec.convert(log, Container)]
    status = pod_status(RUNNING, placed, "192.0.2.1", NOW)
    (shown,) = status["initContainerStatuses"]
    assert (shown["name"], shown["ready"], shown["started"]) == ("guest-console-log", True, True)
    assert ready({"spec": msgspec.to_builtins(placed.spec), "status": status}) == "3/3"
    placed.status = msgspec.convert(status, PodStatus)
    later = pod_status(RUNNING, placed, "192.0.2.1", LATER)
    assert later["initContainerStatuses"] == [shown]
    over = pod_status(SUCCEEDED, placed, "192.0.2.1", LATER)["initContainerStatuses"]
    assert over[0]["state"]["terminated"]["reason"] == "Completed"


def test_a_paused_machine_is_running_and_not_ready():
    status = pod_status(fold(RUNNING, Change.PAUSED), pod(), "192.0.2.1", NOW)
    assert status["phase"] == "Running"
    assert condition(status, "Ready")["reason"] == "ReadinessGatesNotReady"
    assert condition(status, "ContainersReady")["status"] == "True"


def test_a_missing_qos_class_is_set():
    placed = pod(resources={"requests": {"memory": "64M"}})
    placed.status = None
    assert pod_status(RUNNING, placed, "192.0.2.1", NOW)["qosClass"] == "Burstable"


def test_an_oom_killed_vmi_has_the_reason():
    assert instance_status(replace(FAILED, out_of_memory=True), vmi("Running"), a_pod(), NOW)[
        "reason"
    ] == ("OOMKilled")
    assert "reason" not in instance_status(FAILED, vmi("Running"), a_pod(), NOW)


def test_a_vmi_is_running_only_after_scheduled():
    assert instance_status(RUNNING, vmi("Scheduling"), a_pod(), NOW) == {}
    changes = instance_status(RUNNING, vmi(), a_pod(), NOW)
    assert changes["phase"] == "Running"
    assert changes["phaseTransitionTimestamps"] == [
        {"phase": "Running", "phaseTransitionTimestamp": NOW}
    ]
    assert changes["machine"] == {"type": "q35"}
    assert changes["currentCPUTopology"] == {"sockets": 1, "cores": 1, "threads": 1}
    assert changes["memory"]["guestAtBoot"] == "64Mi"


def test_a_running_vmi_shows_what_it_was_started_in():
    started = {"launcher": "corral/launcher:1 QEMU 8", "machine_type": "pc-q35-8.2"}
    changes = instance_status(RUNNING, vmi(), a_pod(), NOW, **started)
    assert changes["launcherContainerImageVersion"] == "corral/launcher:1 QEMU 8"
    assert changes["machine"] == {"type": "pc-q35-8.2"}
    shown = vmi()
    shown.status.launcher_container_image_version = "corral/launcher:1 QEMU 8"
    again = instance_status(RUNNING, shown, a_pod(), NOW, **started)
    assert "launcherContainerImageVersion" not in again


def grown(requested="1Gi", growing=("HotVCPUChange", "HotMemoryChange"), phase="Running"):
    """A VMI into which a socket, and memory up to ``requested``, are being plugged."""
    amounts = {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": requested}
    one = vmi(
        phase,
        currentCPUTopology={"sockets": 1, "cores": 2, "threads": 1},
        memory=amounts,
        conditions=[{"type": name, "status": "True"} for name in growing],
    )
    one.spec.domain.cpu = Cpu(sockets=2, cores=2, threads=1, max_sockets=4)
    one.spec.domain.memory = Memory(guest=requested, max_guest="4Gi")
    return one


def sized(processors, plugged=0, **facts):
    size = GuestSize(processors, 1 << 30, plugged, plugged)
    return replace(RUNNING, size=size, **facts)


def test_what_is_plugged_in_is_shown_and_ends_its_condition():
    changes = instance_status(sized(4, 1 << 30), grown("2Gi"), a_pod(), NOW)
    assert changes["currentCPUTopology"] == {"sockets": 2, "cores": 2, "threads": 1}
    assert changes["memory"] == {"guestAtBoot": "1Gi", "guestCurrent": "2Gi"}
    kinds = {each["type"] for each in changes["conditions"]}
    assert not kinds & {"HotVCPUChange", "HotMemoryChange"}


def test_what_is_not_plugged_in_yet_keeps_its_condition():
    changes = instance_status(sized(2, 1 << 29), grown("2Gi"), a_pod(), NOW)
    assert changes["memory"]["guestCurrent"] == "1536Mi"
    assert "currentCPUTopology" not in changes
    for name in ("HotVCPUChange", "HotMemoryChange"):
        assert condition(changes, name)["status"] == "True"


def test_why_nothing_can_be_plugged_in_is_shown():
    facts = sized(2, resize_failure="no room")
    found = condition(instance_status(facts, grown(), a_pod(), NOW), "HotVCPUChange")
    assert (found["status"], found["reason"]) == ("True", "HotPlugFailed")
    assert found["message"] == "no room"


def test_a_vmi_that_answers_again_keeps_its_size():
    silent = grown("2Gi", (), phase="Unknown")
    changes = instance_status(sized(2), silent, a_pod(), NOW)
    assert changes["phase"] == "Running"
    assert "memory" not in changes
    assert "currentCPUTopology" not in changes


def test_the_status_of_a_vmi_conforms_to_its_schema():
    """Then it need not be pruned at each write, which takes three times as long."""
    document = msgspec.to_builtins(vmi())
    document["status"] |= instance_status(RUNNING, vmi(), a_pod(), NOW)
    assert document["status"]["conditions"]
    assert schema_for(VIRTUAL_MACHINE_INSTANCE).fits(document)


def test_an_unchanged_vmi_status_is_not_written():
    changes = instance_status(RUNNING, vmi(), a_pod(), NOW)
    assert instance_status(RUNNING, vmi(**changes), a_pod(), LATER) == {}


@pytest.mark.parametrize("is_ready", [True, False])
def test_ready_is_written_with_a_new_phase(is_ready):
    placed = a_pod(ready=is_ready)
    before = {"type": "Ready", "status": "False", "reason": "GuestNotRunning"}
    changes = instance_status(RUNNING, vmi(conditions=[before]), placed, NOW)
    ready = condition(changes, "Ready")
    assert (ready["status"], "reason" in ready) == (str(is_ready), False)
    over = instance_status(SUCCEEDED, vmi("Running", conditions=changes["conditions"]), placed, NOW)
    assert condition(over, "Ready")["status"] == "False"
    assert condition(over, "Ready")["reason"] == "GuestNotRunning"


def test_ready_is_left_to_the_controller_while_the_phase_stays():
    theirs = {"type": "Ready", "status": "False", "reason": "Theirs"}
    changes = instance_status(RUNNING, vmi("Running", conditions=[theirs]), a_pod(), NOW)
    assert condition(changes, "Ready")["reason"] == "Theirs"


@pytest.mark.parametrize(("facts", "phase"), [(SUCCEEDED, "Succeeded"), (FAILED, "Failed")])
@pytest.mark.parametrize("before", ["Scheduling", "Scheduled", "Running"])
def test_the_final_phase_of_a_vmi_is_that_of_its_machine(facts, phase, before):
    assert instance_status(facts, vmi(before), a_pod(), NOW)["phase"] == phase


def test_a_final_phase_does_not_change():
    assert instance_status(FAILED, vmi("Succeeded"), a_pod(), NOW) == {}


def test_an_agent_is_connected_or_absent():
    connected = fold(RUNNING, Change.AGENT_CONNECTED)
    changes = instance_status(connected, vmi("Running"), a_pod(), NOW)
    assert condition(changes, "AgentConnected")["status"] == "True"
    again = vmi("Running", **changes)
    assert instance_status(connected, again, a_pod(), LATER) == {}
    left = instance_status(RUNNING, again, a_pod(), LATER)["conditions"]
    assert [one["type"] for one in left] == ["LiveMigratable"]


def test_a_fork_is_not_ready_until_its_identity_was_renewed_or_could_not_be():
    for reason, is_forked, is_ready in (
        (PENDING, "False", "False"),
        (SHARED, "False", "True"),
        (RENEWED, "True", "True"),
    ):
        facts = replace(RUNNING, fork=ForkState(reason))
        changes = instance_status(facts, vmi("Running"), a_pod(), NOW)
        assert condition(changes, FORKED)["status"] == is_forked
        assert condition(changes, FORKED)["reason"] == reason
        assert condition(pod_status(facts, pod(), "192.0.2.1", NOW), "Ready")["status"] == is_ready
        again = vmi("Running", **changes)
        assert condition({"conditions": changes["conditions"]}, FORKED) == condition(
            {"conditions": msgspec.to_builtins(again.status.conditions)}, FORKED
        )
        assert instance_status(RUNNING, again, a_pod(), LATER) == {}


def test_a_pause_has_its_reason():
    changes = instance_status(
        fold(RUNNING, Change.PAUSED_BY_IO_ERROR), vmi("Running"), a_pod(), NOW
    )
    assert condition(changes, "Paused")["reason"] == "PausedIOError"


def test_a_spare_that_goes_on_is_ready_once_it_has_the_right_time():
    paused = fold(replace(RUNNING, paused_as_spare=True), Change.PAUSED)
    shown = condition(instance_status(paused, vmi("Running"), a_pod(), NOW), "Paused")
    assert (shown["reason"], "spare" in shown["message"]) == ("PausedAsSpare", True)
    resumed = fold(paused, Change.RESUMED)
    done = replace(resumed, paused_as_spare=False)
    for facts, is_ready in ((paused, "False"), (resumed, "False"), (done, "True")):
        assert condition(pod_status(facts, pod(), "192.0.2.1", NOW), "Ready")["status"] == is_ready


def test_errors_of_this_node_are_reported_and_cleared():
    troubled = Facts(trouble=NO_QEMU)
    changes = instance_status(troubled, vmi("Scheduling"), a_pod(), NOW)
    assert condition(changes, "Synchronized")["reason"] == "QemuNotFound"
    after = instance_status(RUNNING, vmi("Running", **changes), a_pod(), NOW)["conditions"]
    assert [one["type"] for one in after] == ["LiveMigratable"]


def test_image_errors_are_left_to_the_controller():
    assert instance_status(Facts(trouble=NO_IMAGE), vmi("Scheduling"), a_pod(), NOW) == {}
    theirs = {"type": "Synchronized", "status": "False", "reason": "ErrImagePull"}
    changes = instance_status(RUNNING, vmi(conditions=[theirs]), a_pod(), NOW)
    assert condition(changes, "Synchronized")["reason"] == "ErrImagePull"


@pytest.mark.parametrize(("alone", "status"), [(True, "False"), (False, "True")])
def test_a_running_vmi_is_migratable_unless_its_node_is_alone_on_its_host(alone, status):
    assert "conditions" not in instance_status(Facts(state=State.PULLING), vmi(), a_pod(), NOW)
    migratable = condition(
        instance_status(RUNNING, vmi(), a_pod(), NOW, alone=alone), "LiveMigratable"
    )
    assert migratable["status"] == status
    assert migratable.get("reason") == ("MigrationNotSupported" if alone else None)


def test_a_pod_has_its_addresses_before_its_machine_runs():
    facts = Facts(state=State.PULLING, addresses=("10.244.0.7", "fd00::7"))
    status = pod_status(facts, pod(), "192.0.2.1", NOW)
    assert status["podIP"] == "10.244.0.7"
    assert status["podIPs"] == [{"ip": "10.244.0.7"}, {"ip": "fd00::7"}]
    assert status["hostIP"] == "192.0.2.1"
    without = pod_status(Facts(state=State.PULLING), pod(), "192.0.2.1", NOW)
    assert "podIP" not in without


def guest(*interfaces: GuestInterface, binding="masquerade", **changes):
    """What an instance says of its interfaces, whose guest says this."""
    guest_info = GuestInfo(interfaces=interfaces) if interfaces else None
    facts = Facts(state=State.RUNNING, guest_info=guest_info, addresses=("10.244.0.7", "fd00::7"))
    instance = vmi()
    card = instance.spec.domain.devices.interfaces[0]
    if binding == "bridge":
        card = msgspec.structs.replace(card, masquerade=None, bridge=Bridge())
    instance.spec.domain.devices.interfaces = [msgspec.structs.replace(card, **changes)]
    return instance_status(facts, instance, a_pod(), NOW).get("interfaces", [])


def test_a_masquerade_interface_has_the_addresses_of_the_pod():
    card = mac(UID, "default")
    ours = {
        "name": "default",
        "mac": card,
        "ipAddress": "10.244.0.7",
        "ipAddresses": ["10.244.0.7", "fd00::7"],
        "infoSource": "domain",
        "queueCount": 1,
        "linkState": "up",
        "podInterfaceName": "eth0",
    }
    assert guest() == [ours]
    shown = guest(GuestInterface(name="ens3", mac=card, addresses=("10.0.2.2", "fd10:0:2::2")))
    assert shown == [ours | {"infoSource": "domain, guest-agent", "interfaceName": "ens3"}]


def test_a_bridge_interface_has_the_addresses_of_the_guest():
    card = mac(UID, "default")
    addresses = ("10.244.0.7", "fe80::1")
    shown = guest(GuestInterface(name="e", mac=card, addresses=addresses), binding="bridge")
    assert shown[0]["ipAddresses"] == ["10.244.0.7", "fe80::1"]
    silent = guest(GuestInterface(name="e", mac=card), binding="bridge")
    assert silent[0]["ipAddress"] == "10.244.0.7"


def test_interfaces_that_only_the_guest_reports_come_last_and_are_limited():
    own = GuestInterface(name="docker0", mac="02:42:00:00:00:01", addresses=("172.17.0.1",))
    shown = guest(own)
    assert [one.get("name") for one in shown] == ["default", None]
    assert shown[1] == {
        "mac": "02:42:00:00:00:01",
        "interfaceName": "docker0",
        "infoSource": "guest-agent",
        "ipAddress": "172.17.0.1",
        "ipAddresses": ["172.17.0.1"],
    }
    many = [GuestInterface(name=f"v{n}", mac=f"02:42:00:00:00:{n:02x}") for n in range(200)]
    assert len(guest(*many)) < 20


def test_interfaces_report_down_and_absent():
    assert guest(state="down")[0]["linkState"] == "down"
    assert guest(state="absent") == []


def test_addresses_are_those_of_guest_info_if_available():
    card = mac(UID, "default")
    without = instance_status(RUNNING, vmi(), a_pod(), NOW)["interfaces"]
    assert without[0]["ipAddress"] == "10.0.2.15"
    assert without[0]["mac"] == card
    assert without[0]["infoSource"] == "domain"
    guest_info = GuestInfo(
        os={"name": "Debian"},
        interfaces=(GuestInterface(name="eth0", mac=card, addresses=("10.0.2.99", "fd00::1")),),
    )
    changes = instance_status(
        Facts(state=State.RUNNING, guest_info=guest_info), vmi(), a_pod(), NOW
    )
    assert changes["interfaces"][0]["ipAddresses"] == ["10.0.2.99", "fd00::1"]
    assert changes["interfaces"][0]["interfaceName"] == "eth0"
    assert changes["interfaces"][0]["infoSource"] == "domain, guest-agent"
    assert changes["guestOSInfo"] == {"name": "Debian"}
