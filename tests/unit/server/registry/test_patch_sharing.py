"""What a patch leaves alone is shared between an object's versions: nobody may write into it."""

import pytest
from tests.unit.server.conftest import MACHINES, MERGE, PODS, SERVICES, SETS, STRATEGIC, VMS

from corral.api.encoding import encode
from corral.server.registry.rest import Rest

DOMAIN = {"devices": {}, "memory": {"guest": "64Mi"}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"domain": DOMAIN}}
SPECS = {
    MACHINES: {"domain": DOMAIN},
    VMS: {"runStrategy": "Halted", "template": TEMPLATE},
    SETS: {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
    PODS: {"containers": [{"name": "c", "image": "i"}]},
    SERVICES: {"ports": [{"port": 80}]},
}
LABEL = {"metadata": {"labels": {"new": "one"}, "annotations": {"x": "y"}}}
STATUS = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.fixture
def versions(monkeypatch):
    """Of each update: the desired version, and the old one before and after it."""
    seen = []
    updated = Rest.evaluate_update

    async def watched(self, call, record, desired, old=None):
        before = encode(old)
        shares = desired.get("spec") is old["spec"]
        document = await updated(self, call, record, desired, old)
        seen.append((shares, before, encode(old)))
        return document

    monkeypatch.setattr(Rest, "evaluate_update", watched)
    return seen


@pytest.mark.parametrize("collection", SPECS)
async def test_a_patch_does_not_modify_older_versions(ask, versions, collection):
    made = await ask("POST", collection, {"metadata": {"name": "a"}, "spec": SPECS[collection]})
    assert made.status == 201, made.text
    kinds = [MERGE, STRATEGIC] if collection in (PODS, SERVICES) else [MERGE]
    for number, kind in enumerate(kinds):
        for path in ("", "/status"):
            for patch in (LABEL, STATUS, {**LABEL, **STATUS}):
                change = {**patch, "metadata": {"labels": {"number": str(number)}}}
                answer = await ask("PATCH", f"{collection}/a{path}", change, kind)
                assert answer.status in (200, 404), answer.text
    assert versions
    assert all(before == after for _, before, after in versions)
    found = await ask("GET", f"{collection}/a")
    assert found["spec"] == made["spec"]
    assert found.metadata.get("generation") == made.metadata.get("generation")


async def test_a_patch_of_the_status_does_not_copy_the_spec(ask, versions):
    await ask("POST", MACHINES, {"metadata": {"name": "a"}, "spec": SPECS[MACHINES]})
    await ask("PATCH", f"{MACHINES}/a", {**LABEL, **STATUS}, MERGE)
    assert [shares for shares, _, _ in versions] == [True]


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
async def test_a_status_of_kubernetes_own_kinds_does_not_copy_the_spec(ask, versions, kind):
    for collection in (PODS, SERVICES):
        await ask("POST", collection, {"metadata": {"name": "a"}, "spec": SPECS[collection]})
        answer = await ask("PATCH", f"{collection}/a/status", {**LABEL, **STATUS}, kind)
        assert answer.status == 200, answer.text
    assert [shares for shares, _, _ in versions] == [True, True]


async def test_allocated_or_changed_parts_are_not_shared(ask, versions):
    await ask("POST", SERVICES, {"metadata": {"name": "a"}, "spec": SPECS[SERVICES]})
    await ask("PATCH", f"{SERVICES}/a", LABEL, MERGE)
    await ask("POST", PODS, {"metadata": {"name": "a"}, "spec": SPECS[PODS]})
    await ask("PATCH", f"{PODS}/a", {"spec": {"activeDeadlineSeconds": 5}}, MERGE)
    assert [shares for shares, _, _ in versions] == [False, False]
