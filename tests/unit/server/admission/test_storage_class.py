"""What the server does about claims by their storage classes."""

import pytest
from tests.unit.server.conftest import CLAIMS, MERGE

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def claim(name="data", **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }


def storage_class(name, annotations=None, **fields):
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "provisioner": "corral.dev/directory",
        **fields,
    }


async def test_a_claim_without_a_class_gets_the_default_one(ask):
    none = await ask("POST", CLAIMS, claim("early"))
    assert "storageClassName" not in none["spec"]
    await ask("POST", CLASSES, storage_class("plain"))
    await ask("POST", CLASSES, storage_class("usual", DEFAULT))
    assert (await ask("POST", CLAIMS, claim()))["spec"]["storageClassName"] == "usual"
    for name in ("", "plain"):
        kept = await ask("POST", CLAIMS, claim(f"with-{name}x", storageClassName=name))
        assert kept["spec"]["storageClassName"] == name


async def test_of_several_default_classes_the_newest_counts(ask):
    await ask("POST", CLASSES, storage_class("b", DEFAULT))
    await ask("POST", CLASSES, storage_class("a", DEFAULT))
    made = {(await ask("POST", CLAIMS, claim(f"c{n}")))["spec"]["storageClassName"] for n in "12"}
    assert made == {"a"}


async def test_the_same_size_in_another_unit_is_no_change(ask):
    made = await ask("POST", CLAIMS, claim())
    same = {"spec": {"resources": {"requests": {"storage": "1024Mi"}}}}
    patched = await ask("PATCH", f"{CLAIMS}/data", same, MERGE)
    assert (patched.status, patched.document) == (200, made.document)


@pytest.mark.parametrize(
    ("name", "allowed"), [("grows", True), ("stays", False), ("", False), ("gone", False)]
)
async def test_a_claim_grows_only_if_its_class_allows_expansion(ask, name, allowed):
    await ask("POST", CLASSES, storage_class("grows", allowVolumeExpansion=True))
    await ask("POST", CLASSES, storage_class("stays"))
    await ask("POST", CLAIMS, claim(storageClassName=name))
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    await ask("PATCH", f"{CLAIMS}/data/status", bound, MERGE)
    more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    answer = await ask("PATCH", f"{CLAIMS}/data", more, MERGE)
    if allowed:
        assert answer.status == 200
        assert answer["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    else:
        assert answer.status == 403
        assert answer["message"] == (
            'persistentvolumeclaims "data" is forbidden: only dynamically provisioned pvc can be '
            "resized and the storageclass that provisions the pvc must support resize"
        )
