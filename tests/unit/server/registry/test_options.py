"""Options of requests that make no sense are refused, and named as what they are."""

import pytest
from tests.unit.server.conftest import MAPS, STRATEGIC


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("dryRun=Some", "dryRun", 'Unsupported value: ["Some"]: supported values: "All"'),
        (
            "fieldValidation=Some",
            "fieldValidation",
            'Unsupported value: "Some": supported values: "Ignore", "Strict", "Warn"',
        ),
    ],
)
@pytest.mark.parametrize(
    ("method", "options"),
    [("POST", "CreateOptions"), ("PUT", "UpdateOptions"), ("PATCH", "PatchOptions")],
)
async def test_options_are_named_by_the_verb(ask, method, options, query, field, message):
    await ask.create(MAPS, "a")
    path = MAPS if method == "POST" else f"{MAPS}/a"
    headers = STRATEGIC if method == "PATCH" else None
    answer = await ask(method, f"{path}?{query}", {"metadata": {"name": "a"}}, headers)
    assert answer.status == 422
    assert answer["message"] == f'{options}.meta.k8s.io "" is invalid: {field}: {message}'
    assert answer["details"]["kind"] == options


async def test_force_is_for_apply_only(ask):
    await ask.create(MAPS, "a")
    answer = await ask("PATCH", f"{MAPS}/a?force=true", {"data": {"a": "b"}}, STRATEGIC)
    assert answer.status == 422
    assert answer["message"] == (
        'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for '
        "non-apply patch"
    )


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ({"kind": "Pod"}, 400, "decoded object cannot be converted to DeleteOptions"),
        (
            {"gracePeriodSeconds": "x"},
            400,
            (
                'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: json: '
                "cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of "
                "type int64"
            ),
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            (
                'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: '
                '"Orphan": orphanDependents and deletionPropagation cannot be both set'
            ),
        ),
    ],
)
async def test_invalid_delete_options_delete_nothing(ask, options, status, message):
    await ask.create(MAPS, "a")
    answer = await ask("DELETE", f"{MAPS}/a", options)
    assert (answer.status, answer["message"]) == (status, message)
    assert (await ask("GET", f"{MAPS}/a")).status == 200


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("sendInitialEvents=true", "sendInitialEvents", "sendInitialEvents is forbidden for list"),
        (
            "continue=a&resourceVersion=1&resourceVersionMatch=Exact",
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "watch=1&sendInitialEvents=true",
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
    ],
)
async def test_contradictory_list_options_are_rejected(ask, query, field, message):
    answer = await ask("GET", f"{MAPS}?{query}")
    assert answer.status == 422
    assert answer["message"] == (
        f'ListOptions.meta.k8s.io "" is invalid: {field}: Forbidden: {message}'
    )
