"""What KubeVirt's own controllers list and watch before they begin, as recorded of them."""

import contextlib
from urllib.parse import parse_qsl

import pytest

pytestmark = pytest.mark.conformance

INSTANCETYPES = "instancetype.kubevirt.io/v1beta1"
LISTED = [
    "/api/v1/namespaces",
    "/api/v1/namespaces/kubevirt/configmaps?fieldSelector=metadata.name=kubevirt-config",
    "/api/v1/namespaces/kubevirt/secrets?labelSelector=kubevirt.io",
    "/api/v1/nodes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/pods",
    "/api/v1/pods?labelSelector=kubevirt.io",
    "/api/v1/resourcequotas",
    "/api/v1/services?labelSelector=kubevirt.io",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apps/v1/controllerrevisions",
    f"/apis/{INSTANCETYPES}/virtualmachineclusterinstancetypes",
    f"/apis/{INSTANCETYPES}/virtualmachineclusterpreferences",
    f"/apis/{INSTANCETYPES}/virtualmachineinstancetypes",
    f"/apis/{INSTANCETYPES}/virtualmachinepreferences",
    "/apis/kubevirt.io/v1/kubevirts",
    "/apis/kubevirt.io/v1/virtualmachineinstancereplicasets",
    "/apis/kubevirt.io/v1/virtualmachineinstances",
    "/apis/kubevirt.io/v1/virtualmachines",
    "/apis/networking.k8s.io/v1/namespaces/kubevirt/ingresses",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/pool.kubevirt.io/v1beta1/virtualmachinepools",
    "/apis/storage.k8s.io/v1/storageclasses",
]
NOT_SERVED = [
    "/apis/backup.kubevirt.io/v1alpha1/virtualmachinebackups",
    "/apis/backup.kubevirt.io/v1alpha1/virtualmachinebackuptrackers",
    "/apis/clone.kubevirt.io/v1beta1/virtualmachineclones",
    "/apis/export.kubevirt.io/v1/virtualmachineexports",
    "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
    "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies",
    "/apis/snapshot.kubevirt.io/v1beta1/virtualmachinerestores",
    "/apis/snapshot.kubevirt.io/v1beta1/virtualmachinesnapshotcontents",
    "/apis/snapshot.kubevirt.io/v1beta1/virtualmachinesnapshots",
]
"""There is nothing behind these: the reference says so, and clients find it out by discovery."""


def test_what_is_listed_first_can_be_watched_from_there(api):
    """All at once, as controllers do it."""
    with contextlib.ExitStack() as watches:
        opened = []
        for path in LISTED:
            place, _, query = path.partition("?")
            selected = dict(parse_qsl(query))
            page = api.get_document(place, **selected, limit=500, resourceVersion=0)
            since = {"resourceVersion": page["metadata"]["resourceVersion"], "timeoutSeconds": 1}
            asked = selected | since | {"allowWatchBookmarks": "true"}
            opened.append((path, watches.enter_context(api.watch(place, **asked))))
        for path, events in opened:
            assert "ERROR" not in [event["type"] for event in events], path


@pytest.mark.parametrize("path", NOT_SERVED)
def test_what_does_nothing_is_not_there(api, path):
    assert api.get(path).status_code == 404
    group_version, _, plural = path.removeprefix("/apis/").rpartition("/")
    served = api.get(f"/apis/{group_version}")
    assert served.status_code == 404 or plural not in served.text
