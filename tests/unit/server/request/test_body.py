"""Bodies that are large: read beside the loop, and refused before they are stored."""

import asyncio
import threading

import pytest

from corral.server.request import body

MAPS = "/api/v1/namespaces/default/configmaps"
YAML = {"content-type": "application/yaml"}
LARGE = "\n".join(
    ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: large}", "data:"]
    + [f"  key-{number}: value" for number in range(10_000)]
).encode()


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_decoding_a_large_body_yields_to_other_requests(ask, monkeypatch, method):
    path = MAPS if method == "POST" else f"{MAPS}/large"
    if method == "PUT":
        await ask.create(MAPS, "large")
    answered = threading.Event()
    read = body.read_yaml
    monkeypatch.setattr(body, "read_yaml", lambda call: answered.wait(60) and read(call))
    asking = asyncio.create_task(ask(method, path, LARGE, YAML))
    await asyncio.sleep(0)
    assert (await ask("GET", MAPS)).status == 200
    answered.set()
    stored = await asking
    assert stored.status in (200, 201)
    assert len(stored["data"]) == 10_000


async def test_faults_of_a_large_body_are_reported_as_usual(ask):
    refused = await ask("POST", MAPS, LARGE + b"\n  key-1: again: again", YAML)
    assert (refused.status, refused["reason"]) == (400, "BadRequest")
    assert "yaml: line 10005" in refused["message"]


async def test_a_patch_that_makes_an_object_too_large_is_rejected(ask):
    made = await ask.create(MAPS, "a", data={"a": "x" * 500_000})
    grown = {"metadata": {"annotations": {"b": "x" * 200_000, "c": "y"}}, "data": {"b": "y" * 500}}
    assert (await ask.patch(f"{MAPS}/a", grown)).status == 200
    labels = {"metadata": {"labels": {f"k{number}": "" for number in range(50_000)}}}
    refused = await ask.patch(f"{MAPS}/a", labels)
    assert (refused.status, refused["reason"]) == (413, "RequestEntityTooLarge")
    assert "limit is 1572864 bytes for an object as it is stored" in refused["message"]
    kept = await ask("GET", f"{MAPS}/a")
    assert kept.metadata["uid"] == made["metadata"]["uid"]
    assert "labels" not in kept.metadata
