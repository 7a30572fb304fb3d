"""The health of real guests: probes that are asked, agents that answer, watchdogs that bite."""

import json
from collections.abc import Iterator

import pytest
from tests.cluster import Outside, outside, ranges, until
from tests.conformance.api import KUBEVIRT, Api

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
OFTEN = {
    "initialDelaySeconds": 90, "periodSeconds": 1, "timeoutSeconds": 3, "failureThreshold": 2,
}  # fmt: skip
"""Probes begin when a guest should have booted: of their failures 25 become events, no more."""
PATIENT = {"periodSeconds": 4, "timeoutSeconds": 4, "failureThreshold": 5}
"""Probes do not time out a guest that is slow because others have the processors."""
BOOT = 150
"""Seconds that three guests have to boot together, beside those of other modules."""
STARVE = (
    "sh", "-c", "(watchdog -T 2 /dev/watchdog && sleep 1 && killall -9 watchdog) >/dev/null 2>&1 &"
)  # fmt: skip
"""Feeds the watchdog, and then no more; it does not wait for that, as the guest ends with it."""
MACHINES = f"{KUBEVIRT}/namespaces/default/virtualmachineinstances"
CORE = "/api/v1/namespaces/default"


def template(action: str, **spec) -> dict:
    """A machine with a watchdog."""
    devices = {
        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
        "interfaces": [{"name": "default", "masquerade": {}}],
        "watchdog": {"name": "watchdog", "i6300esb": {"action": action}},
    }
    return {
        "domain": {"memory": {"guest": "128Mi"}, "devices": devices},
        "networks": [{"name": "default", "pod": {}}],
        "terminationGracePeriodSeconds": 120,
        "volumes": [{"name": "root", "containerDisk": {"image": REFERENCE}}],
        **spec,
    }


def of_kind(kind: str, name: str, spec: dict) -> dict:
    version = "v1" if kind == "Service" else "kubevirt.io/v1"
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


ONE = of_kind(
    "VirtualMachineInstance",
    "one",
    template("reset", readinessProbe={"tcpSocket": {"port": 8080}, **OFTEN}),
)
SERVICE = of_kind("Service", "one", {"selector": {"app": "one"}, "ports": [{"port": 8080}]})
QUIET = of_kind("VirtualMachineInstance", "quiet", template("shutdown"))
SET = of_kind(
    "VirtualMachineInstanceReplicaSet",
    "set",
    {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "set"}},
        "template": {
            "metadata": {"labels": {"app": "set"}},
            "spec": template(
                "poweroff",
                readinessProbe={"exec": {"command": ["cat", "/run/well"]}, **OFTEN},
                livenessProbe={"guestAgentPing": {}, "initialDelaySeconds": BOOT, **PATIENT},
            ),
        },
    },
)


@pytest.fixture(scope="module")
def site(demo_disk, tmp_path_factory) -> Iterator["Site"]:
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        documents = {"apiVersion": "v1", "kind": "List", "items": [ONE, SERVICE, QUIET, SET]}
        user.kubectl("create", "-f", "-", input=json.dumps(documents))
        with Api(user.one.directory / "kubeconfig") as api:
            site = Site(user, api)
            for app in ("one", "quiet", "set"):
                site.await_agent(app)
            yield site


class Site:
    """A cluster with a machine of each app."""

    def __init__(self, user: Outside, api: Api) -> None:
        self._user = user
        self._api = api

    def machines(self, app: str) -> list[dict]:
        return self._api.items(MACHINES, labelSelector=f"app={app}")

    def machine(self, app: str) -> dict:
        (only,) = self.machines(app)
        return only

    def holds(self, app: str, condition: str) -> bool:
        """Return whether something holds for the machine of an app, if that is there."""
        machines = self.machines(app)
        found = [one for each in machines for one in each["status"].get("conditions", [])]
        return (condition, "True") in [(one["type"], one["status"]) for one in found]

    def await_agent(self, app: str) -> None:
        """Wait until it runs commands: it is connected before, while its guest still boots."""
        until(f"the agent of {app} is there", lambda: self.holds(app, "AgentConnected"))
        until("it answers", lambda: self.run(app, "echo", "well", check=False) == "well\n")

    def run(self, app: str, *command: str, check: bool = True) -> str:
        """Run a command in the machine of an app."""
        uid = self.machine(app)["metadata"]["uid"]
        (pod,) = self._api.items(f"{CORE}/pods", labelSelector=f"kubevirt.io/created-by={uid}")
        return self._user.kubectl("exec", pod["metadata"]["name"], "--", *command, check=check)

    def await_event(self, reason: str, text: str) -> None:
        """Wait for an event with a text in its message: events are written later than statuses."""

        def is_there() -> bool:
            found = self._api.items(f"{CORE}/events", fieldSelector=f"reason={reason}")
            return any(text in one["message"] for one in found)

        until(f"an event says: {text}", is_there)

    def endpoints(self) -> list[str]:
        """Return the ready endpoints of the Service."""
        subsets = self._api.get_document(f"{CORE}/endpoints/one").get("subsets") or []
        return [one["ip"] for subset in subsets for one in subset.get("addresses") or []]

    def starve(self, app: str, deed: str) -> None:
        """Let a guest feed its watchdog no more, and wait for the event."""
        self.run(app, *STARVE)
        self.await_event("WatchdogExpired", f"The guest no longer feeds its watchdog: {deed}.")

    def failure(self, door: str) -> str:
        """Return the error of a query to the agent of "one"; empty for an answer."""
        group = MACHINES.replace("kubevirt.io", "subresources.kubevirt.io")
        answer = self._api.get(f"{group}/one/{door}")
        return "" if answer.status_code == 200 else answer.text

    def await_another(self, before: dict) -> None:
        """Until the set has one machine, in place of one that is gone."""

        def is_replaced() -> bool:
            uids = [one["metadata"]["uid"] for one in self.machines("set")]
            return len(uids) == 1 and uids != [before["metadata"]["uid"]]

        until("the set has another machine", is_replaced)


def test_readiness_and_endpoints_follow_a_port(site):
    assert not site.holds("one", "Ready"), "nobody listens yet"
    assert site.endpoints() == []
    for _ in range(2):
        site.run("one", "httpd", "-p", "8080", "-h", "/srv/www")
        until("it is ready", lambda: site.holds("one", "Ready"))
        until("the service leads to it", site.endpoints)
        site.run("one", "sh", "-c", "kill $(pidof httpd)")
        until("it is not ready", lambda: not site.holds("one", "Ready"))
        until("the service does not lead to it", lambda: not site.endpoints())
    site.await_event("Unhealthy", "connect: connection refused")
    assert site.machine("one")["status"]["phase"] == "Running"


def test_readiness_follows_a_command(site):
    assert not site.holds("set", "Ready"), "there is no such file yet"
    site.run("set", "touch", "/run/well")
    until("it is ready", lambda: site.holds("set", "Ready"))
    site.run("set", "rm", "/run/well")
    until("it is not ready", lambda: not site.holds("set", "Ready"))
    missing = "the command exited with 1: cat: can't open '/run/well'"
    site.await_event("Unhealthy", missing)


def test_a_watchdog_shuts_its_guest_down(site):
    site.starve("quiet", "it is asked to shut down")
    ended = "The VirtualMachineInstance was shut down."
    until("it has ended", lambda: site.machine("quiet")["status"]["phase"] == "Succeeded")
    site.await_event("Stopped", ended)


def test_a_watchdog_resets_its_guest(site):
    boot = ("cat", "/proc/sys/kernel/random/boot_id")
    before = site.run("one", *boot)
    site.starve("one", "it is reset")

    def other() -> bool:
        now = site.run("one", *boot, check=False)  # which fails while its agent is away
        return len(now) == len(before) and now != before

    until("it has booted again", other)
    assert site.machine("one")["status"]["phase"] == "Running"


def test_invalid_data_of_a_guest_agent_is_harmless(site):
    port = "p=$(grep -lx org.qemu.guest_agent.0 /sys/class/virtio-ports/*/name); p=${p%/name}"
    # Killed: its handler of SIGTERM takes a lock of GLib, which the interrupted code may hold.
    # It lets go of its port when it has ended, however long that takes.
    babble = (
        "(sleep 1; killall -KILL qemu-ga; until cat /dev/urandom > /dev/${p##*/}; do sleep 1; done)"
        " > /dev/null 2>&1 &"
    )
    site.run("one", "sh", "-c", f"{port}; {babble}")
    nonsense = "unexpected answer of the guest agent"
    until("it is not understood", lambda: nonsense in site.failure("guestosinfo"))
    assert site.holds("one", "AgentConnected"), "its port is open"
    assert site.machine("one")["status"]["phase"] == "Running"
    site.await_agent("set")
    assert site.run("set", "echo", "well").strip() == "well"


def test_a_guest_with_a_failed_liveness_probe_is_replaced(site):
    before = site.machine("set")
    site.run("set", "killall", "-STOP", "qemu-ga", check=False)
    site.await_another(before)
    why = "failed its liveness probe: no answer within 4 s"
    site.await_event("Stopped", f"The VirtualMachineInstance {why}")
    site.await_agent("set")


def test_a_watchdog_powers_its_guest_off_and_the_set_replaces_it(site):
    before = site.machine("set")
    site.starve("set", "it is powered off")
    site.await_another(before)
    message = "The VirtualMachineInstance was powered off by its watchdog."
    site.await_event("Stopped", message)
