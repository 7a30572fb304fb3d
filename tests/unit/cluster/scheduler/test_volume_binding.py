"""What a pod's claims ask of its node."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.models.storage_v1 import StorageClass

from corral.cluster.scheduler import volume_binding
from corral.cluster.scheduler.volume_binding import Listers, pod_volumes

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
SSD = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        ]
    }
}


def pod(*names, uid="pod", node=""):
    sources = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    spec = {"containers": [], "volumes": sources, "nodeName": node}
    metadata = {"name": uid, "namespace": "default", "uid": uid}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def claim(name="data", annotations=None, phase="Pending", **spec):
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(document, PersistentVolumeClaim)


def volume(name="disk", **spec):
    document = {
        "metadata": {"name": name, "uid": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **spec},
        "status": {"phase": "Available"},
    }
    return msgspec.convert(document, PersistentVolume)


def storage_class(provisioner="corral.dev/directory", mode="WaitForFirstConsumer", **fields):
    document = {
        "metadata": {"name": "late"},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **fields,
    }
    return msgspec.convert(document, StorageClass)


def listers(*things, users=()):
    claims = {one.metadata.name: one for one in things if isinstance(one, PersistentVolumeClaim)}
    there = {one.metadata.name: one for one in things if isinstance(one, PersistentVolume)}
    classes = {one.metadata.name: one for one in things if isinstance(one, StorageClass)}
    return Listers(
        claim=lambda key: claims.get(key.name),
        volume=lambda key: there.get(key.name),
        storage_class=lambda key: classes.get(key.name),
        volumes_of_class=lambda name: [
            one for one in there.values() if (one.spec.storageClassName or "") == name
        ],
        users=lambda _key: users,
    )


def node(name="node0", **labels):
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)


def test_a_pod_without_claims_fits_everywhere():
    requested = pod_volumes(pod(), listers())
    assert (requested.reason, requested.unfit_reason(node()), requested.bindings(node())) == (
        "",
        "",
        [],
    )


@pytest.mark.parametrize(
    ("things", "why"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim()], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim(volumeName="disk")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [claim(storageClassName="late"), storage_class(mode="Immediate")],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            [claim(annotations=BOUND, phase="Lost", volumeName="disk")],
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "disk"',
        ),
    ],
)
def test_unresolvable_volume_problems_are_reported(things, why):
    assert pod_volumes(pod("data"), listers(*things)).reason == why


@pytest.mark.parametrize(
    ("things", "labels", "why"),
    [
        ([volume()], {}, ""),
        ([], {}, volume_binding.NO_VOLUME),
        ([volume(nodeAffinity=SSD)], {}, volume_binding.UNREACHABLE),
        ([volume(nodeAffinity=SSD)], {"disk": "ssd"}, ""),
    ],
)
def test_a_node_must_match_the_affinity_of_bound_volumes(things, labels, why):
    requested = pod_volumes(
        pod("data"), listers(claim(annotations=BOUND, volumeName="disk"), *things)
    )
    assert requested.reason == ""
    assert requested.unfit_reason(node(**labels)) == why


@pytest.mark.parametrize(
    ("things", "found"),
    [
        ([storage_class()], [None]),
        ([storage_class(), volume(storageClassName="late")], ["disk"]),
        ([storage_class(), volume(storageClassName="late", nodeAffinity=SSD)], [None]),
        ([storage_class("kubernetes.io/no-provisioner")], None),
        (
            [
                storage_class(
                    allowedTopologies=[
                        {"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}
                    ]
                )
            ],
            None,
        ),
    ],
)
def test_unbound_claims_get_a_volume_on_the_node_or_one_is_provisioned(things, found):
    requested = pod_volumes(pod("data"), listers(claim(storageClassName="late"), *things))
    bindings = requested.bindings(node())
    if found is None:
        assert bindings is None
        assert requested.unfit_reason(node()) == volume_binding.NOTHING_TO_BIND
    else:
        assert [one.volume and one.volume.metadata.name for one in bindings] == found


def test_two_claims_of_a_pod_get_different_volumes():
    things = [claim(name, storageClassName="late") for name in ("a", "b")]
    requested = pod_volumes(
        pod("a", "b"), listers(*things, storage_class(), volume(storageClassName="late"))
    )
    made = [one.volume is None for one in requested.bindings(node())]
    assert made == [False, True]


def test_a_claim_with_a_selected_node_is_scheduled_there():
    promised = claim(
        annotations={"volume.kubernetes.io/selected-node": "node1"}, storageClassName="late"
    )
    requested = pod_volumes(pod("data"), listers(promised, storage_class()))
    assert requested.unfit_reason(node()) == volume_binding.NOTHING_TO_BIND
    assert requested.unfit_reason(node("node1")) == ""


def test_a_read_write_once_pod_claim_is_not_shared():
    alone = claim(annotations=BOUND, volumeName="disk", accessModes=["ReadWriteOncePod"])
    other = pod("data", uid="other", node="node0")
    requested = pod_volumes(pod("data"), listers(alone, volume(), users=[other]))
    assert requested.unfit_reason(node()) == volume_binding.IN_USE
    requested = pod_volumes(other, listers(alone, volume(), users=[other]))
    assert requested.unfit_reason(node()) == ""
    assert pod_volumes(pod("data"), listers(alone, volume())).is_in_use is False


HERE = {
    "required": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "corral.dev/storage", "operator": "In", "values": ["s2"]}
                ]
            }
        ]
    }
}


def with_space(size, name="node0"):
    annotations = {"corral.dev/storage-capacity": str(size)}
    return msgspec.convert({"metadata": {"name": name, "annotations": annotations}}, Node)


@pytest.mark.parametrize(
    ("left", "names", "annotations", "parameters", "why"),
    [
        (1 << 30, ["data"], None, {}, ""),
        ((1 << 30) - 1, ["data"], None, {}, volume_binding.NO_SPACE),
        (1 << 30, ["data", "more"], None, {}, volume_binding.NO_SPACE),
        (0, ["data"], {"volume.kubernetes.io/selected-node": "node0"}, {}, ""),
        (0, ["data"], None, {"overcommitPercent": "100"}, ""),
    ],
)
def test_volumes_are_provisioned_where_there_is_space(left, names, annotations, parameters, why):
    claims = [claim(name, annotations, storageClassName="late") for name in names]
    found = pod_volumes(pod(*names), listers(*claims, storage_class(parameters=parameters)))
    assert found.unfit_reason(with_space(left)) == why


def test_a_clone_is_provisioned_where_its_source_lies():
    copy = claim(
        storageClassName="late", dataSource={"kind": "PersistentVolumeClaim", "name": "golden"}
    )
    golden = claim("golden", BOUND, volumeName="disk")
    found = pod_volumes(
        pod("data"), listers(copy, golden, volume(nodeAffinity=HERE), storage_class())
    )
    assert found.unfit_reason(node("one")) == volume_binding.UNREACHABLE
    assert found.unfit_reason(node("two", **{"corral.dev/storage": "s2"})) == ""


def test_a_copy_by_a_data_volume_may_be_made_anywhere_but_best_beside_its_source():
    populate = {"corral.dev/populate": '{"source":{"pvc":{"name":"golden"}}}'}
    copy = claim("data", populate, storageClassName="late")
    golden = claim("golden", BOUND, volumeName="disk")
    found = pod_volumes(
        pod("data"), listers(copy, golden, volume(nodeAffinity=HERE), storage_class())
    )
    beside, elsewhere = node("two", **{"corral.dev/storage": "s2"}), node("one")
    assert found.unfit_reason(elsewhere) == found.unfit_reason(beside) == ""
    assert found.unfit_reason_beside_sources(elsewhere) == volume_binding.UNREACHABLE
    assert found.unfit_reason_beside_sources(beside) == ""
