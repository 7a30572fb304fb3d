"""Objects of its namespace that a VMI names."""

import msgspec
from tests.unit.controllers.make import make_vmi

from corral.api.kinds.vmi.referenced_objects import Reference, named_objects, references
from corral.api.kinds.vmi.vmi import Spec


def named(**spec):
    document = {"domain": {"devices": {}}, **spec}
    return sorted(f"{one.kind}/{one.name}" for one in references(msgspec.convert(document, Spec)))


def test_every_source_that_is_an_object_is_named():
    volumes = [
        {"containerDisk": {"image": "i", "imagePullSecret": "pull"}},
        {"cloudInitNoCloud": {"secretRef": {"name": "user"}, "networkData": "x"}},
        {"cloudInitConfigDrive": {"networkDataSecretRef": {"name": "network"}, "userData": "x"}},
        {"secret": {"secretName": "secret"}},
        {"configMap": {"name": "map"}},
        {"sysprep": {"secret": {"name": "answers"}}},
        {"sysprep": {"configMap": {"name": "answers"}}},
        {"serviceAccount": {"serviceAccountName": "robot"}},
        {"emptyDisk": {"capacity": "1Gi"}},
    ]
    volumes = [{"name": f"v{number}", **each} for number, each in enumerate(volumes)]
    assert named(volumes=volumes) == [
        "ConfigMap/answers",
        "ConfigMap/kube-root-ca.crt",
        "ConfigMap/map",
        "Secret/answers",
        "Secret/network",
        "Secret/pull",
        "Secret/secret",
        "Secret/user",
        "ServiceAccount/robot",
    ]


def test_access_credentials_name_their_secrets():
    key = {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}
    word = {
        "source": {"secret": {"secretName": "words"}},
        "propagationMethod": {"qemuGuestAgent": {}},
    }
    credentials = [{"sshPublicKey": key}, {"userPassword": word}, {}]
    assert named(accessCredentials=credentials) == ["Secret/keys", "Secret/words"]


def test_references_without_a_name_are_left_out():
    volumes = [
        {"name": "a", "containerDisk": {"image": "i"}},
        {"name": "b", "cloudInitNoCloud": {"secretRef": {}, "userData": "x"}},
    ]
    assert named(volumes=volumes) == []


def test_the_secret_of_user_data_is_named_once_a_machine_is_handed_out():
    vmi = make_vmi()
    assert named_objects(vmi) == set()
    vmi.metadata.annotations["corral.dev/user-data-secret"] = "seed"
    assert named_objects(vmi) == {Reference("Secret", "seed")}
