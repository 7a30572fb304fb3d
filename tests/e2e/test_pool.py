"""A pool of real machines: disks and memory that are kept, and an update that nobody notices."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

import pytest
from tests.cluster import PATIENCE, Outside, outside, ranges, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

REFERENCE = "kubevirt/cirros-container-disk-demo:latest"
LABELS = {"pool": "web"}
PATIENT = {"timeoutSeconds": 20, "failureThreshold": 6}
"""A timeout for guests that are slow while others boot."""
COUNTING = "i=0; while :; do i=$((i+1)); echo $i >/run/count; sleep 0.1; done"


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory):
    with outside(*ranges(__file__), directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        user.kubectl("create", "-f", "-", input=json.dumps(pool(2)))
        wait_until_ready(user, 2)
        yield user


def pool(replicas: int) -> dict:
    """Machines of two disks: the system's is thrown away, the other one is the machine's own."""
    data = {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "64Mi"}}}}
    spec = {
        "terminationGracePeriodSeconds": 5,
        "domain": {
            "memory": {"guest": "128Mi"},
            "devices": {
                "rng": {},
                "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in ("root", "data")],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1, **PATIENT},
        "volumes": [
            {"name": "root", "containerDisk": {"image": REFERENCE}},
            {"name": "data", "dataVolume": {"name": "data"}},
        ],
    }
    return {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "maxUnavailable": 1,
            "scaleInStrategy": {"proactive": {"statePreservation": "Offline"}},
            "virtualMachineTemplate": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "runStrategy": "Always",
                    "dataVolumeTemplates": [{"metadata": {"name": "data"}, "spec": data}],
                    "template": {"metadata": {"labels": LABELS}, "spec": spec},
                },
            },
        },
    }


def change(user: Outside, **spec) -> None:
    patch = json.dumps({"spec": spec})
    user.kubectl("patch", "vmpool", "web", "--type", "merge", "--patch", patch)


def machines(user: Outside) -> dict[str, dict]:
    return {vmi["metadata"]["name"]: vmi for vmi in user.items("vmi")}


def has_condition(vmi: dict, condition: str) -> bool:
    conditions = vmi.get("status", {}).get("conditions", [])
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def wait_until_ready(user: Outside, replicas: int) -> None:
    """Wait until there are so many machines, and all of them answer."""

    def settled() -> bool:
        status = user.get("vmpool", "web").get("status", {})
        counts = status.get("replicas", 0), status.get("readyReplicas", 0)
        found = machines(user).values()
        return (
            counts == (replicas, replicas)
            and len(found) == replicas
            and all(
                has_condition(vmi, "Ready") and has_condition(vmi, "AgentConnected")
                for vmi in found
            )
        )

    until(f"{replicas} machines are ready", settled)


def in_guest(user: Outside, name: str, command: str) -> str:
    [pod] = user.items("pod", "-l", f"vm.kubevirt.io/name={name}")
    return user.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", command)


def test_data_of_guests_survives_a_scale_in_and_out(user):
    for name in ("web-0", "web-1"):
        in_guest(user, name, f"printf kept-by-{name} >/dev/vdb; sync")
    change(user, replicas=0)
    wait_until_ready(user, 0)
    assert {one["metadata"]["name"] for one in user.items("dv")} == {"data-0", "data-1"}
    change(user, replicas=2)
    wait_until_ready(user, 2)
    for name in ("web-0", "web-1"):
        assert in_guest(user, name, "head -c 13 /dev/vdb") == f"kept-by-{name}"


def test_guests_with_saved_memory_resume(user):
    change(user, scaleInStrategy={"proactive": {"statePreservation": "Online"}})
    before = {}
    for name in ("web-0", "web-1"):
        in_guest(user, name, f"setsid sh -c '{COUNTING}' >/dev/null 2>&1 </dev/null &")
        before[name] = counted(user, name, above=0)
    addresses = {name: mac(vmi) for name, vmi in machines(user).items()}
    change(user, replicas=0)
    wait_until_ready(user, 0)
    change(user, replicas=2)
    wait_until_ready(user, 2)
    for name, count in before.items():
        first = counted(user, name, above=count - 1)
        assert counted(user, name, above=first) > first
    assert {name: mac(vmi) for name, vmi in machines(user).items()} == addresses
    until("no memory is left", lambda: not [c for c in claims(user) if c.endswith("-memory")])


def counted(user: Outside, name: str, *, above: int) -> int:
    """Return the counter of a guest, once it is beyond a number."""
    wait = f'until i=$(cat /run/count) && [ "$i" -gt {above} ]; do usleep 100000; done; echo $i'
    return int(in_guest(user, name, f"( {wait} ) 2>/dev/null"))


def mac(vmi: dict) -> str:
    return vmi["status"]["interfaces"][0]["mac"]


def claims(user: Outside) -> list[str]:
    return [claim["metadata"]["name"] for claim in user.items("pvc")]


def test_a_rolling_update_keeps_the_service_available(user):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "selector": LABELS, "ports": [{"port": 80}]},
    }
    user.kubectl("create", "-f", "-", input=json.dumps(service))
    port = user.get("service", "web")["spec"]["ports"][0]["nodePort"]
    until("the Service answers", lambda: answers(port))
    before = {vmi["metadata"]["uid"] for vmi in machines(user).values()}
    over = threading.Event()
    fewest, tries = [2], Counter[bool]()
    watchers = [
        threading.Thread(target=count_endpoints, args=(user, over, fewest)),
        threading.Thread(target=count_answers, args=(port, over, tries)),
    ]
    for each in watchers:
        each.start()
    try:
        grace = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 6}}}}
        change(user, virtualMachineTemplate=grace)
        until(
            "all machines are new",
            lambda: not before & {vmi["metadata"]["uid"] for vmi in machines(user).values()},
            3 * PATIENCE,
        )
        wait_until_ready(user, 2)
    finally:
        over.set()
        for each in watchers:
            each.join()
    assert fewest[0] >= 1, "never fewer than all but one could serve"
    # Guests that boot take the host's processors from those that answer: some wait in vain.
    assert tries[True] > tries[False], "whoever asked was answered mostly"


def count_endpoints(user: Outside, over: threading.Event, fewest: list[int]) -> None:
    """The smallest number of ready machines that the Service had."""
    while not over.is_set():
        subsets = user.get("endpoints", "web").get("subsets", [])
        ready = sum(len(subset.get("addresses", [])) for subset in subsets)
        fewest[0] = min(fewest[0], ready)


def count_answers(port: int, over: threading.Event, tries: Counter[bool]) -> None:
    """Return the numbers of requests to the Service that were answered, and that were not."""
    while not over.is_set():
        tries[answers(port)] += 1
        time.sleep(0.1)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def test_a_deleted_pool_leaves_nothing(user):
    user.kubectl("delete", "vmpool", "web")
    until("everything is gone", lambda: not user.items("vm") and not machines(user))
    until("the claims went with it", lambda: not claims(user))
    until("and their volumes", lambda: not user.items("pv"))
