"""Validation and names of definitions, as in apiextensions-apiserver."""

import copy

import pytest

from corral.api.kind import Kind, Version
from corral.api.kinds.crd import builtin, naming
from corral.api.kinds.crd.definition import DEFINITION, CustomResourceDefinition
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.schema import schema_for

VALID = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "herds.farm.example.com"},
    "spec": {
        "group": "farm.example.com",
        "scope": "Namespaced",
        "names": {"plural": "herds", "kind": "Herd"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


def validated(change, old=None, user="me"):
    document = copy.deepcopy(VALID)
    change(document)
    schema = schema_for(DEFINITION)
    unknown = schema.prune(document)
    assert not unknown
    assert schema.check(document) == []
    if old is None:
        DEFINITION.default_create(document)
    else:
        document["status"] = old["status"]
    DEFINITION.default(document)
    verdict = DEFINITION.validate(document, old, user)
    return document, {cause.field: cause.message for cause in verdict.causes}


def put(*path, value):
    def change(document):
        *above, last = path
        for step in above:
            document = document[step]
        document[last] = value

    return change


def test_names_and_conversion_have_defaults():
    document, causes = validated(lambda _: None)
    assert causes == {}
    assert document["spec"]["names"] == {
        "plural": "herds",
        "kind": "Herd",
        "singular": "herd",
        "listKind": "HerdList",
    }
    assert document["spec"]["conversion"] == {"strategy": "None"}
    assert document["status"]["storedVersions"] == ["v1"]


V1 = ("spec", "versions", 0)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (
            put("metadata", "name", value="cows.farm.example.com"),
            "metadata.name",
            'Invalid value: "cows.farm.example.com": must be spec.names.plural+"."+spec.group',
        ),
        (
            put("spec", "group", value="farm"),
            "spec.group",
            'Invalid value: "farm": should be a domain with at least one dot',
        ),
        (
            put("spec", "group", value="farm.k8s.io"),
            "metadata.annotations[api-approved.kubernetes.io]",
            ("Required value: protected groups must have approval annotation "
            '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'),
        ),
        (
            put("spec", "scope", value="namespaced"),
            "spec.scope",
            'Unsupported value: "namespaced": supported values: "Cluster", "Namespaced"',
        ),
        (
            put(*V1, "storage", value=False),
            "spec.versions",
            'Invalid value: ["v1"]: must have exactly one version marked as storage version',
        ),
        (
            put(*V1, "schema", value={}),
            "spec.versions[0].schema.openAPIV3Schema",
            "Required value: schemas are required",
        ),
        (
            put(*V1, "subresources", value={"scale": {
                "specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"
            }}),
            "spec.versions[0].subresources.scale.specReplicasPath",
            'Invalid value: ".status.n": should be a json path under .spec',
        ),
        (
            put(*V1, "additionalPrinterColumns", value=[
                {"name": "A", "type": "text", "jsonPath": ".a"}
            ]),
            "spec.versions[0].additionalPrinterColumns[0].type",
            'Invalid value: "text": must be one of boolean,date,integer,number,string',
        ),
        (
            put(*V1, "selectableFields", value=[{"jsonPath": ".spec.size"}]),
            "spec.versions[0].selectableFields[0].jsonPath",
            'Invalid value: ".spec.size": is an invalid path: does not refer to a valid field',
        ),
        (
            put("spec", "conversion", value={"strategy": "Webhook"}),
            "spec.conversion.strategy",
            ("Forbidden: corral converts between versions by their apiVersion alone: set the "
            "strategy to None, and give the versions schemas that fit each other"),
        ),
        (
            put(*V1, "deprecationWarning", value="old"),
            "spec.versions[0].deprecationWarning",
            'Invalid value: "old": can only be set for deprecated versions',
        ),
        (
            put("spec", "names", value={"plural": "herds", "kind": "Herd", "listKind": "Herd"}),
            "spec.names.listKind",
            'Invalid value: "Herd": kind and listKind may not be the same',
        ),
    ],
)  # fmt: skip
def test_invalid_definitions_have_the_messages_of_kubernetes(change, field, message):
    _, causes = validated(change)
    assert causes[field] == message


def test_scope_and_stored_versions_are_immutable():
    old, _ = validated(lambda _: None)
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    _, causes = validated(put("spec", "scope", value="Cluster"), old)
    assert causes == {"spec.scope": 'Invalid value: "Cluster": field is immutable'}
    _, causes = validated(put(*V1, "name", value="v2"), old)
    assert causes["status.storedVersions[0]"].startswith(
        'Invalid value: "v1": missing from spec.versions; v1 was previously a storage version'
    )


def test_the_schema_of_schemas_has_every_keyword_at_any_depth():
    document = copy.deepcopy(VALID)
    inner = {"type": "string", "nonsense": 1}
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] = {
        "list": {"type": "array", "items": {"allOf": [inner], "type": "string"}}
    }
    path = "spec.versions[0].schema.openAPIV3Schema.properties.list.items.allOf[0].nonsense"
    assert schema_for(DEFINITION).prune(document) == [path]


def test_free_names_are_accepted():
    document, _ = validated(put("spec", "names", "shortNames", value=["h"]))
    document["metadata"]["generation"] = 1
    free = naming.updated_status(document, naming.UsedNames.of([], []), "now")
    assert free["acceptedNames"] == document["spec"]["names"]
    assert (
        naming.updated_status({**document, "status": free}, naming.UsedNames.of([], []), "later")
        == free
    )
    document["metadata"]["generation"] = 2  # its schema has changed
    later = naming.updated_status(
        {**document, "status": free}, naming.UsedNames.of([], []), "later"
    )
    assert later["conditions"] == [
        each | {"observedGeneration": 2} for each in free["conditions"]
    ], "else kubectl would wait for it for ever"
    other = Kind(
        group="farm.example.com",
        name="Other",
        plural="others",
        short=("h",),
        versions=(Version(name="v1"),),
        view=CustomResourceDefinition,
    )
    taken = naming.updated_status(document, naming.UsedNames.of([], [other]), "now")
    assert [(each["type"], each["status"], each["reason"]) for each in taken["conditions"]] == [
        ("NamesAccepted", "False", "ShortNamesConflict"),
        ("Established", "False", "NotAccepted"),
    ]
    assert taken["conditions"][0]["message"] == '"h" is already in use'


def test_definitions_of_built_in_kinds_match_the_schema():
    document = builtin.definition_of(VIRTUAL_MACHINE)
    assert schema_for(DEFINITION).prune(document) == []
    assert schema_for(DEFINITION).check(document) == []


def test_an_unchanged_version_is_not_validated_again():
    """A later corral may have stricter rules: an unchanged version must not block updates."""
    rules = put(*V1, "schema", "openAPIV3Schema", "x-kubernetes-validations", value=[{"rule": "?"}])
    old, causes = validated(rules)
    assert causes, "it would be refused if it came"
    _, causes = validated(rules, old)
    assert causes == {}
    old["spec"]["versions"][0]["served"] = False
    _, causes = validated(rules, old)
    assert causes, "it has changed"
