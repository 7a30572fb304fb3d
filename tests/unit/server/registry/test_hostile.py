"""Whatever is posted, put or patched to any kind: the server answers, and never fails itself."""

import json
import random
from typing import Any

import pytest
from tests.unit.api.kinds.test_hostile_everywhere import KEPT, value

from corral.api.schema import structural

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, 2**31, 2**63, 10**30, "", "x", "\0", "a" * 300, "1Gi", "25%",
    "2026-13-45T99:99:99Z", [], [None], [[]], [1, "a", {}], {}, {"": ""}, {"a": None},
    {"$patch": "replace"}, {"$patch": "delete"}, {"$retainKeys": ["a"]}, [{"$patch": "replace"}],
    [{"name": "a"}, {"name": "a"}], [{"name": {}}], {"matchLabels": {"a": "b"}},
)  # fmt: skip
ROUNDS = 25
PATCHES = ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")

RULES = "/apis/admissionregistration.k8s.io/v1"
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
HALF = "object.metadata.name.endsWith('x') || has(object.spec) && object.spec == object.spec"


@pytest.fixture
async def judged(ask):
    """A way to a server whose namespace limits, counts and judges what comes."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    limits = [
        {"type": "Container", "default": amounts, "max": {"cpu": "1T"}, "min": {"cpu": "0"}},
        {"type": "Pod", "max": {"memory": "1E"}, "maxLimitRequestRatio": {"cpu": "1000"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1E"}, "min": {"storage": "0"}},
    ]
    home = "/api/v1/namespaces/default"
    await ask.create(f"{home}/limitranges", "limits", spec={"limits": limits})
    hard = {"pods": "1G", "requests.cpu": "1E", "requests.storage": "8E", "services": "1G"}
    await ask.create(f"{home}/resourcequotas", "quota", spec={"hard": hard})
    await ask.create(
        f"{RULES}/validatingadmissionpolicies",
        "half",
        spec={
            "matchConstraints": {"resourceRules": [EVERYTHING]},
            "validations": [{"expression": HALF}],
        },
    )
    binding = {"policyName": "half", "validationActions": ["Warn"]}
    await ask.create(f"{RULES}/validatingadmissionpolicybindings", "half", spec=binding)
    return ask


def home(kind) -> str:
    prefix = f"apis/{kind.group}" if kind.group else "api"
    scope = "namespaces/default/" if kind.namespaced else ""
    return f"/{prefix}/{kind.version}/{scope}{kind.plural}"


def spoiled(document: Any, dice: random.Random) -> Any:
    """The document with an odd value somewhere in it."""
    if not document or dice.random() < 0.2:
        return dice.choice(ODD)
    if isinstance(document, dict):
        key = dice.choice(sorted(document))
        return {**document, key: spoiled(document[key], dice)}
    if isinstance(document, list):
        place = dice.randrange(len(document))
        return [*document[:place], spoiled(document[place], dice), *document[place + 1 :]]
    return dice.choice(ODD)


def sent(kind, dice: random.Random) -> dict:
    document = value(structural(kind), dice, 0, "")
    document["metadata"] = {"generateName": "odd-", "labels": {"a": "b"}}
    document |= {"apiVersion": kind.api_version, "kind": kind.name}
    if dice.random() < 0.7:
        document = spoiled(document, dice)
    return document


def understood(answer: Any, what: Any) -> None:
    assert answer.status < 500 or answer.document.get("code") == 504, (what, answer.text)
    if answer.status >= 400:
        assert answer["reason"], what
        assert answer["message"], what


@pytest.mark.parametrize("kind", KEPT, ids=repr)
async def test_no_document_breaks_the_server(judged, kind):
    ask = judged
    dice = random.Random(kind.name)
    made = None
    for _ in range(ROUNDS):
        document = sent(kind, dice)
        query = "?dryRun=All" if made else ""
        answer = await ask("POST", home(kind) + query, document)
        understood(answer, document)
        if answer.status == 201 and made is None:
            made = answer.metadata["name"]
        if made is None:
            continue
        path = f"{home(kind)}/{made}?dryRun=All"
        understood(await ask("PUT", path, document), document)
        await patched(ask, path, document, dice)


@pytest.mark.parametrize("kind", KEPT, ids=repr)
async def test_incomplete_documents_get_a_response(judged, kind):
    metadata = {"name": "odd"}
    whole = value(structural(kind), random.Random(0), 0, "") | {"metadata": metadata}
    for name in whole:
        without = {key: part for key, part in whole.items() if key != name}
        for document in (without, without | {name: None}, without | {name: {}}):
            understood(await judged("POST", home(kind) + "?dryRun=All", document), document)
    bare = {"metadata": metadata}
    understood(await judged("POST", home(kind), bare), bare)


async def patched(ask, path: str, document: Any, dice: random.Random) -> None:
    for media in PATCHES:
        patch = document
        if isinstance(document, dict):
            patch = {key: document[key] for key in document if key in ("spec", "status", "data")}
            patch["metadata"] = spoiled({"labels": {"c": "d"}, "finalizers": ["a/b"]}, dice)
        if media == "json-patch+json":
            step = dice.choice(("add", "replace", "test", "remove", "copy", "move"))
            where = dice.choice(
                ("/spec", "/metadata/labels", "/spec/template", "", "/data", "/a/-")
            )
            patch = [{"op": step, "path": where, "from": "/metadata", "value": dice.choice(ODD)}]
        query = "&fieldManager=odd" if media.startswith("apply") else ""
        headers = {"content-type": f"application/{media}"}
        understood(await ask("PATCH", path + query, patch, headers), (media, json.dumps(patch)))
