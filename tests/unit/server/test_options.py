"""Options of requests that make no sense are refused, and named as what they are."""

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}


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
async def test_they_are_told_by_the_verb(ask, method, options, query, field, message):
    await ask.create(MAPS, "a")
    path = MAPS if method == "POST" else f"{MAPS}/a"
    headers = STRATEGIC if method == "PATCH" else None
    answer = await ask(method, f"{path}?{query}", {"metadata": {"name": "a"}}, headers)
    assert answer.status == 422
    assert answer["message"] == f'{options}.meta.k8s.io "" is invalid: {field}: {message}'
    assert answer["details"]["kind"] == options


async def test_only_what_is_applied_can_be_forced(ask):
    await ask.create(MAPS, "a")
    answer = await ask("PATCH", f"{MAPS}/a?force=true", {"data": {"a": "b"}}, STRATEGIC)
    assert answer.status == 422
    assert answer["message"] == (
        'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for '
        "non-apply patch"
    )
