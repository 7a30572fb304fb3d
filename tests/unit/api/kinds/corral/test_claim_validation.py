"""Claims that are refused, with the field and what to do."""

import pytest

from corral.api.kinds.corral.claim_validation import default_claim, validate_claim

SPEC = {"warmPoolRef": {"name": "spares"}}


def claim(name="job", **spec):
    return {"metadata": {"name": name}, "spec": {**SPEC, **spec}}


def faults(document, old=None):
    return [(one.field, one.message) for one in validate_claim(document, old, "alice").causes]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"ttl": "10m", "pendingTimeout": "1h30m", "shutdownTime": "2030-01-01T00:00:00Z"},
        {"userData": {"inline": "#!/bin/sh\ntrue\n"}},
        {"userData": {"secretRef": {"name": "seed"}}},
    ],
)
def test_these_claims_are_valid(spec):
    assert faults(claim(**spec)) == []


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"warmPoolRef": {"name": ""}}, "spec.warmPoolRef.name", "name the"),
        ({"ttl": "soon"}, "spec.ttl", "no duration"),
        ({"ttl": "10ms"}, "spec.ttl", "at least 1s"),
        ({"ttl": "999999999h"}, "spec.ttl", "at most ten years"),
        ({"pendingTimeout": "0s"}, "spec.pendingTimeout", "at least 1s"),
        ({"shutdownTime": "tomorrow"}, "spec.shutdownTime", "not a time"),
        ({"userData": {}}, "spec.userData", "set inline or secretRef"),
        ({"userData": {"secretRef": {"name": ""}}}, "spec.userData.secretRef.name", "name the"),
        ({"userData": {"inline": "#cloud-config\n"}}, "spec.userData.inline", "begin with #!"),
        ({"userData": {"inline": "#!" + "x" * 20_000}}, "spec.userData.inline", "a Secret"),
        (
            {"userData": {"inline": "#!", "secretRef": {"name": "seed"}}},
            "spec.userData.secretRef",
            "may not be set beside inline",
        ),
    ],
)
def test_an_invalid_claim_is_refused_with_its_field(spec, field, message):
    ((path, text),) = faults(claim(**spec))
    assert path == field
    assert message in text


def test_a_name_that_is_no_label_is_refused():
    ((path, text),) = faults(claim("x" * 64))
    assert path == "metadata.name"
    assert "63 characters" in text


def test_only_the_times_at_which_a_claim_ends_may_change():
    old = claim(ttl="10m")
    assert faults(claim(ttl="20m", shutdownTime="2030-01-01T00:00:00Z"), old) == []
    ((path, text),) = faults(claim(warmPoolRef={"name": "others"}), old)
    assert path == "spec.warmPoolRef"
    assert "only ttl and shutdownTime may change" in text
    ((path, _),) = faults(claim(pendingTimeout="1m", ttl="10m"), old)
    assert path == "spec.pendingTimeout"
    ((path, _),) = faults(claim(ttl="soon"), old)
    assert path == "spec.ttl"


def test_an_unchanged_spec_passes_although_rules_became_stricter():
    stored = claim(ttl="soon")
    assert faults({**stored, "metadata": {"name": "job", "labels": {"a": "b"}}}, stored) == []


def test_an_expired_claim_is_deleted_by_default():
    document = claim()
    default_claim(document)
    assert document["spec"]["shutdownPolicy"] == "Delete"
    kept = claim(shutdownPolicy="Retain")
    default_claim(kept)
    assert kept["spec"]["shutdownPolicy"] == "Retain"
