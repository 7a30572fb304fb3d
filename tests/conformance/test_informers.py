"""What controllers of Kubernetes and KubeVirt list and watch before they begin, as recorded."""

import contextlib
import json
from datetime import UTC, date, datetime
from urllib.parse import parse_qsl

import pytest
from cryptography import x509

pytestmark = pytest.mark.conformance

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
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
BY_KUBEVIRT = [
    "/apis/backup.kubevirt.io/v1alpha1/virtualmachinebackups",
    "/apis/backup.kubevirt.io/v1alpha1/virtualmachinebackuptrackers",
    "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs",
    "/apis/cdi.kubevirt.io/v1beta1/cdis",
    "/apis/cdi.kubevirt.io/v1beta1/datasources",
    "/apis/cdi.kubevirt.io/v1beta1/datavolumes",
    "/apis/cdi.kubevirt.io/v1beta1/storageprofiles",
    "/apis/clone.kubevirt.io/v1beta1/virtualmachineclones",
    "/apis/export.kubevirt.io/v1/virtualmachineexports",
    "/apis/export.kubevirt.io/v1beta1/virtualmachineexports",
    "/apis/kubevirt.io/v1/virtualmachineinstancemigrations",
    "/apis/kubevirt.io/v1/virtualmachineinstancepresets",
    "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies",
    "/apis/snapshot.kubevirt.io/v1beta1/virtualmachinerestores",
    "/apis/snapshot.kubevirt.io/v1beta1/virtualmachinesnapshotcontents",
    "/apis/snapshot.kubevirt.io/v1beta1/virtualmachinesnapshots",
]
BY_KUBERNETES = [
    "/api/v1/limitranges",
    f"{CONFIG_MAPS}?fieldSelector=metadata.name=extension-apiserver-authentication",
    "/api/v1/persistentvolumes",
    "/api/v1/podtemplates",
    "/api/v1/replicationcontrollers",
    "/api/v1/serviceaccounts",
    *(
        f"/apis/admissionregistration.k8s.io/v1/{plural}"
        for plural in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    ),
    *(
        f"/apis/apps/v1/{plural}"
        for plural in ("daemonsets", "deployments", "replicasets", "statefulsets")
    ),
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    *(
        f"/apis/certificates.k8s.io/v1/{plural}"
        for plural in (
            "certificatesigningrequests",
            "clustertrustbundles",
            "podcertificaterequests",
        )
    ),
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/events.k8s.io/v1/events",
    *(
        f"/apis/flowcontrol.apiserver.k8s.io/v1/{plural}"
        for plural in ("flowschemas", "prioritylevelconfigurations")
    ),
    *(
        f"/apis/networking.k8s.io/v1/{plural}"
        for plural in ("ingressclasses", "ingresses", "ipaddresses", "servicecidrs")
    ),
    "/apis/node.k8s.io/v1/runtimeclasses",
    *(
        f"/apis/rbac.authorization.k8s.io/v1/{plural}"
        for plural in ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
    ),
    *(
        f"/apis/resource.k8s.io/v1/{plural}"
        for plural in (
            *("deviceclasses", "devicetaintrules", "resourceclaims"),
            *("resourceclaimtemplates", "resourceslices"),
        )
    ),
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    *(
        f"/apis/storage.k8s.io/v1/{plural}"
        for plural in (
            *("csidrivers", "csinodes", "csistoragecapacities"),
            *("volumeattachments", "volumeattributesclasses"),
        )
    ),
    "/apis/storagemigration.k8s.io/v1/storageversionmigrations",
]
"""By kube-scheduler and kube-controller-manager, of Kubernetes 1.36 and 1.37."""
ORDERS = [
    ("backup.kubevirt.io/v1alpha1", "VirtualMachineBackup"),
    ("backup.kubevirt.io/v1alpha1", "VirtualMachineBackupTracker"),
    ("clone.kubevirt.io/v1beta1", "VirtualMachineClone"),
    ("export.kubevirt.io/v1", "VirtualMachineExport"),
    ("snapshot.kubevirt.io/v1beta1", "VirtualMachineRestore"),
    ("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot"),
    ("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshotContent"),
]
"""Nothing acts on these, and an object of them would look like work under way."""


@pytest.mark.parametrize("paths", [[*LISTED, *BY_KUBEVIRT], BY_KUBERNETES])
def test_a_watch_can_start_at_the_revision_of_a_list(api, paths):
    """All at once, as controllers do it."""
    with contextlib.ExitStack() as watches:
        opened = []
        for path in paths:
            place, _, query = path.partition("?")
            selected = dict(parse_qsl(query))
            page = api.get_document(place, **selected, limit=500, resourceVersion=0)
            since = {"resourceVersion": page["metadata"]["resourceVersion"], "timeoutSeconds": 1}
            asked = selected | since | {"allowWatchBookmarks": "true"}
            opened.append((path, watches.enter_context(api.watch(place, **asked))))
        for path, events in opened:
            assert "ERROR" not in [event["type"] for event in events], path


@pytest.mark.parametrize(("api_version", "kind"), ORDERS)
def test_kinds_that_nothing_acts_on_are_rejected(api, namespace, api_version, kind):
    place = f"/apis/{api_version}/namespaces/{namespace}/{kind.lower()}s"
    document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "one"}}
    answer = api.post(place, json=document)
    assert answer.status_code == 422
    assert answer.json()["message"].endswith(f": nothing would act on this {kind}")
    assert api.get_document(place)["items"] == []


def test_the_client_ca_is_published(api):
    """Schedulers, controllers and other API servers do not begin without."""
    data = api.get_document(f"{CONFIG_MAPS}/extension-apiserver-authentication")["data"]
    known = {key: data.pop(key) for key in ("client-ca-file", "requestheader-client-ca-file")}
    for authority in known.values():
        assert x509.load_pem_x509_certificates(authority.encode())
    assert len(set(known.values())) == len(known)  # who forwards requests certifies no users
    assert {key: json.loads(value) for key, value in data.items()} == {
        "requestheader-allowed-names": ["front-proxy-client"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-username-headers": ["X-Remote-User"],
    }
    tracked = "kube-apiserver-legacy-service-account-token-tracking"
    since = api.get_document(f"{CONFIG_MAPS}/{tracked}")["data"]["since"]
    assert date.fromisoformat(since) <= datetime.now(UTC).date()
