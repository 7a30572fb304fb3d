"""The official Python client, which Ansible uses too: unmodified, on a live server."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, dynamic, stream, watch
from kubernetes.client.exceptions import ApiException, ConflictException
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes.utils import create_from_yaml
from tests.cluster import EXAMPLES
from tests.conformance.manifests import machine, replica_set

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("kubernetes"),
    pytest.mark.usefixtures("leaves_sockets"),
]

SETS = ("kubevirt.io", "v1", "virtualmachineinstancereplicasets")
MACHINES = ("kubevirt.io", "v1", "virtualmachineinstances")


@pytest.fixture
def connection(user) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(user.one.directory / "kubeconfig")) as connection:
        yield connection


@pytest.fixture
def core(connection) -> client.CoreV1Api:
    return client.CoreV1Api(connection)


@pytest.fixture
def custom(connection) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(connection)


def at(place: tuple[str, str, str], namespace: str) -> dict[str, str]:
    return dict(zip(("group", "version", "plural"), place, strict=True), namespace=namespace)


def named(name: str, **labels: str) -> client.V1ObjectMeta:
    return client.V1ObjectMeta(name=name, labels=labels)


@pytest.mark.does("connect")
def test_it_connects(connection):
    assert client.VersionApi(connection).get_code().git_version.startswith("v1.")


@pytest.mark.does("discovery")
def test_the_dynamic_client_finds_every_kind(connection, namespace):
    found = dynamic.DynamicClient(connection)
    pools = found.resources.get(api_version="pool.kubevirt.io/v1beta1", kind="VirtualMachinePool")
    assert (pools.name, pools.namespaced) == ("virtualmachinepools", True)
    assert found.resources.get(api_version="v1", kind="Pod").subresources.keys() >= {"log", "exec"}
    assert pools.short_names == ["vmpool", "vmpools"]


@pytest.mark.does("typed")
def test_the_life_of_a_config_map(core, namespace):
    body = client.V1ConfigMap(metadata=named("x"), data={"a": "1"})
    made = core.create_namespaced_config_map(namespace, body)
    made.data["a"] = "2"
    assert core.replace_namespaced_config_map("x", namespace, made).data == {"a": "2"}
    core.delete_namespaced_config_map("x", namespace)
    left = core.list_namespaced_config_map(namespace).items
    assert "x" not in [each.metadata.name for each in left]


@pytest.mark.does("typed")
def test_a_manifest_is_created_from_its_file(connection, namespace):
    create_from_yaml(connection, str(EXAMPLES / "quota.yaml"), namespace=namespace)
    assert client.CoreV1Api(connection).list_namespaced_resource_quota(namespace).items


@pytest.mark.does("custom")
def test_the_life_of_a_replica_set(custom, namespace):
    place = at(SETS, namespace)
    custom.create_namespaced_custom_object(**place, body=replica_set("web", replicas=2))
    changed = replica_set("web", replicas=1)
    while True:  # the set's own controller writes its status, too
        read = custom.get_namespaced_custom_object(**place, name="web")
        changed["metadata"]["resourceVersion"] = read["metadata"]["resourceVersion"]
        with contextlib.suppress(ConflictException):
            custom.replace_namespaced_custom_object(**place, name="web", body=changed)
            break
    listed = custom.list_namespaced_custom_object(**place)
    assert [each["spec"]["replicas"] for each in listed["items"]] == [1]
    custom.delete_namespaced_custom_object(**place, name="web")


@pytest.mark.does("patch")
@pytest.mark.parametrize(
    "patch", [{"data": {"b": "2"}}, [{"op": "add", "path": "/data/b", "value": "2"}]]
)
def test_patches(core, namespace, patch):
    body = client.V1ConfigMap(metadata=named("x"), data={"a": "1"})
    core.create_namespaced_config_map(namespace, body)
    changed = core.patch_namespaced_config_map("x", namespace, patch)
    assert changed.data == {"a": "1", "b": "2"}


def applied(value: str) -> dict[str, Any]:
    metadata = {"name": "x"}
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": value},
    }  # fmt: skip


@pytest.mark.does("apply")
def test_server_side_apply(connection, namespace):
    maps = dynamic.DynamicClient(connection).resources.get(api_version="v1", kind="ConfigMap")
    maps.server_side_apply(body=applied("1"), namespace=namespace, field_manager="one")
    with pytest.raises(dynamic.exceptions.ConflictError) as refused:
        maps.server_side_apply(body=applied("2"), namespace=namespace, field_manager="two")
    assert 'conflict with "one"' in refused.value.summary()
    forced = maps.server_side_apply(
        body=applied("2"), namespace=namespace, field_manager="two", force_conflicts=True
    )
    assert forced.data.a == "2"


@pytest.mark.does("list")
def test_lists(core, namespace):
    for name in "abcde":
        body = client.V1Secret(metadata=named(name, vowel=str(name in "ae")))
        core.create_namespaced_secret(namespace, body)
    page = core.list_namespaced_secret(namespace, limit=3)
    rest = core.list_namespaced_secret(namespace, limit=3, _continue=page.metadata._continue)
    assert [one.metadata.name for one in (*page.items, *rest.items)] == list("abcde")
    vowels = core.list_namespaced_secret(namespace, label_selector="vowel=True")
    assert [one.metadata.name for one in vowels.items] == ["a", "e"]
    one = core.list_namespaced_secret(namespace, field_selector="metadata.name=c")
    assert [each.metadata.name for each in one.items] == ["c"]


@pytest.mark.does("watch")
def test_a_watch_follows_a_list_and_ends_in_time(core, namespace):
    core.create_namespaced_secret(namespace, client.V1Secret(metadata=named("before")))
    revision = core.list_namespaced_secret(namespace).metadata.resource_version
    core.create_namespaced_secret(namespace, client.V1Secret(metadata=named("after")))
    events = watch.Watch().stream(
        core.list_namespaced_secret, namespace, resource_version=revision, timeout_seconds=1
    )
    assert [(each["type"], each["object"].metadata.name) for each in events] == [("ADDED", "after")]


@pytest.mark.does("scale")
def test_scale(connection, custom, namespace):
    place = at(SETS, namespace)
    custom.create_namespaced_custom_object(**place, body=replica_set("web", replicas=0))
    change = {"spec": {"replicas": 2}}
    custom.patch_namespaced_custom_object_scale(**place, name="web", body=change)
    scale = custom.get_namespaced_custom_object_scale(**place, name="web")
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 2})


@pytest.mark.does("status")
def test_status(core, namespace):
    condition = {"type": "Seen", "status": "True"}
    quota = client.V1ResourceQuota(
        metadata=named("q"), spec=client.V1ResourceQuotaSpec(hard={"count/configmaps": "5"})
    )
    core.create_namespaced_resource_quota(namespace, quota)
    body = {"status": {"used": {"count/configmaps": "0"}, "conditions": [condition]}}
    changed = core.patch_namespaced_resource_quota_status("q", namespace, body)
    assert changed.status.used["count/configmaps"] == "0"


@pytest.mark.does("events")
def test_events(core, namespace):
    about = client.V1ObjectReference(kind="ConfigMap", name="x", namespace=namespace)
    body = client.CoreV1Event(
        metadata=named("x.1"), involved_object=about, reason="Seen", message="so it is"
    )
    core.create_namespaced_event(namespace, body)
    read = core.list_namespaced_event(namespace, field_selector="involvedObject.name=x")
    assert [one.message for one in read.items] == ["so it is"]


@pytest.mark.does("lease")
def test_a_leader_is_elected(user, namespace):
    config.load_kube_config(str(user.one.directory / "kubeconfig"))
    led = threading.Event()

    def lead() -> None:
        led.set()

    lock = LeaseLock("leader", namespace, "me")
    election = LeaderElection(
        Config(
            lock, lease_duration=3, renew_deadline=2, retry_period=1,
            onstarted_leading=lead, onstopped_leading=lambda: None,
        )
    )  # fmt: skip
    assert election.acquire()
    held = client.CoordinationV1Api().read_namespaced_lease("leader", namespace)
    assert held.spec.holder_identity == "me"


@pytest.mark.does("access")
def test_access(connection):
    api = client.AuthorizationV1Api(connection)
    asked = client.V1ResourceAttributes(verb="delete", resource="secrets", namespace="default")
    review = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
    )
    assert api.create_self_subject_access_review(review).status.allowed
    review = client.AuthenticationV1Api(connection).create_self_subject_review(
        client.V1SelfSubjectReview()
    )
    assert "system:masters" in review.status.user_info.groups


@pytest.fixture
def pod(custom, core, namespace) -> str:
    """The pod of a machine that runs."""
    custom.create_namespaced_custom_object(**at(MACHINES, namespace), body=machine("vm"))
    for event in watch.Watch().stream(
        core.list_namespaced_pod, namespace, label_selector="vm.kubevirt.io/name=vm"
    ):
        if event["object"].status.phase == "Running":
            return event["object"].metadata.name
    raise AssertionError("the machine did not come up")


@pytest.mark.does("logs")
def test_logs(core, namespace, pod):
    said = core.read_namespaced_pod_log(pod, namespace, container="guest-console-log")
    assert isinstance(said, str)
    with pytest.raises(ApiException) as refused:
        core.read_namespaced_pod_log(pod, namespace, container="nosuch")
    assert "container nosuch is not valid" in refused.value.body


@pytest.mark.does("exec")
def test_commands(core, namespace, pod):
    said = stream.stream(
        core.connect_get_namespaced_pod_exec, pod, namespace,
        command=["echo", "hello"], container="compute", stdout=True, stderr=True,
    )  # fmt: skip
    assert said.strip() == "echo hello"  # a simulated guest says its command


@pytest.mark.does("errors")
def test_refusals(core, custom, namespace):
    with pytest.raises(ApiException) as refused:
        core.read_namespaced_secret("nosuch", namespace)
    assert (refused.value.status, refused.value.reason) == (404, "Not Found")
    bad = replica_set("web", replicas=-1)
    with pytest.raises(ApiException) as refused:
        custom.create_namespaced_custom_object(**at(SETS, namespace), body=bad)
    assert refused.value.status == 422
