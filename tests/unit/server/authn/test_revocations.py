"""Tests of certificates that are refused before their time is up."""

import json

import pytest

from corral.api.request import Certificate
from corral.api.revocation import MAP, USERS
from corral.server.authn.revocations import Revocations
from corral.store import Store

ISSUED = 1_790_000_000
BEGINS = ISSUED - 300
BEFORE, AT, AFTER = "2026-09-21T14:13:19Z", "2026-09-21T14:13:20Z", "2026-09-21T14:13:21Z"


def certificate(name="anna"):
    return Certificate(name=name, begins=BEGINS, ends=ISSUED + 3600, fingerprint="ab")


async def write_map(store, data):
    await store.write("configmaps", MAP, {"metadata": {**MAP._asdict()}, "data": data})


async def test_certificates_issued_until_the_time_are_revoked():
    store = Store.in_memory()
    revocations = Revocations(store)
    assert not revocations.covers(certificate())
    for time, covered in ((BEFORE, False), (AT, True), (AFTER, True), (BEFORE, False)):
        await write_map(store, {USERS: json.dumps({"anna": time})})
        assert revocations.covers(certificate()) is covered
        assert not revocations.covers(certificate("ben"))
    await store.delete("configmaps", MAP, {"metadata": {**MAP._asdict()}})
    assert not revocations.covers(certificate())
    await store.close()


@pytest.mark.parametrize("text", ["{", "[]", '{"anna": 7}', '{"ben": "yesterday"}'])
async def test_an_invalid_config_map_revokes_all_certificates(text):
    store = Store.in_memory()
    revocations = Revocations(store)
    await write_map(store, {USERS: text})
    assert revocations.covers(certificate())
    await write_map(store, {"other": "x"})
    assert not revocations.covers(certificate())
    await store.close()
