"""Whatever a client sends, the answer is a verdict: nothing that fits the schema breaks a rule."""

import copy
import types
import typing
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from corral.api.errors import MAX_CAUSES
from corral.api.kinds import KINDS
from corral.api.kinds.kubevirt.kinds import REPLICA_SET, VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.kubevirt.replicaset import ReplicaSetTemplate
from corral.api.kinds.vmi.vmi import Spec
from corral.api.schema import schema_for

WORDS = st.sampled_from(
    [
        "",
        "a",
        "b",
        "-",
        "A",
        "virtio",
        "sata",
        "Paused",
        "default",
        "pc",
        "../x",
        "ü",
        "YQ==",
        "64M",
    ]
) | st.text(max_size=8)
NUMBERS = st.sampled_from([-1, 0, 1, 2, 512, 65536, 2**63 - 1])
QUANTITIES = st.sampled_from(["", "0", "-1", "64M", "1e300", "1E3", "100m", "1Q", "9" * 40, 5])
NESTED = 6  # deeper than the deepest field that a rule looks at costs time only


def values(kind: Any, depth: int) -> st.SearchStrategy[Any]:
    """Documents that a type could have been decoded from, and a few that it could not."""
    if kind is str or kind is datetime:
        return WORDS
    if kind is int:
        return NUMBERS
    if kind is bool:
        return st.booleans()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.deferred(lambda: documents(kind, depth - 1)) if depth else st.just({})
    inner = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Annotated:
            bounded = inner[0] == str | int
            return QUANTITIES if bounded else values(inner[0], depth)
        case typing.Union | types.UnionType:
            return st.one_of(*(values(one, depth) for one in inner if one is not type(None)))
        case origin if origin is list:
            return st.lists(values(inner[0], depth), max_size=2)
        case origin if origin is dict:
            return st.dictionaries(WORDS, values(inner[1], depth) if inner else WORDS, max_size=2)
    return st.just({})


def documents(view: type[msgspec.Struct], depth: int = NESTED) -> st.SearchStrategy[Any]:
    """Objects with the required fields of a view, and some of the others."""
    required, optional = {}, {}
    for field in msgspec.structs.fields(view):
        (required if field.required else optional)[field.encode_name] = field.type
    chosen = st.lists(st.sampled_from(sorted(optional)), max_size=3) if optional else st.just([])

    def filled(names: list[str]) -> st.SearchStrategy[Any]:
        picked = required | {name: optional[name] for name in names}
        return st.fixed_dictionaries({name: values(kind, depth) for name, kind in picked.items()})

    return chosen.flatmap(filled)


@settings(max_examples=150)
@given(documents(Spec))
def test_vmis_that_match_the_schema_are_defaulted_and_validated(spec):
    kind = VIRTUAL_MACHINE_INSTANCE
    document = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "vm", "creationTimestamp": "2026-01-31T12:00:00Z"},
        "spec": spec,
    }
    schema = schema_for(kind)
    schema.prune(document)
    if schema.check(document):
        return
    kind.default_create(document)
    kind.validate(document, None, "kubernetes-admin")
    completed = copy.deepcopy(document["spec"])
    kind.default_create(document)
    assert document["spec"] == completed
    assert schema.check(document) == []


@settings(max_examples=100)
@given(
    documents(ReplicaSetTemplate),
    st.fixed_dictionaries({}, optional={"matchLabels": st.dictionaries(WORDS, WORDS, max_size=2)}),
)
def test_sets_that_match_the_schema_are_validated(template, selector):
    kind = REPLICA_SET
    document = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": "set"},
        "spec": {"selector": selector, "template": template},
    }
    schema = schema_for(kind)
    schema.prune(document)
    if not schema.check(document):
        kind.validate(document, None, "kubernetes-admin")


@settings(max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | NUMBERS | WORDS,
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["spec", "template", "domain", "devices", "disks", "volumes"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_any_v1alpha2_document_is_converted(spec):
    for kind in (VIRTUAL_MACHINE_INSTANCE, REPLICA_SET):
        for version in kind.versions:
            if version.read is not None:
                version.read({"spec": spec})


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}


class Unsliced(list):
    """A list of which nobody may take a part for each of its items."""

    def __getitem__(self, index):
        assert not isinstance(index, slice)
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("group", "plural", "spec", "field"),
    [
        (
            "certificates.k8s.io",
            "certificatesigningrequests",
            {"signerName": "a.example/b", "usages": Unsliced(["any"] * 500)},
            "spec.usages[1]",
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            {"policyName": "a", "validationActions": Unsliced(["Deny"] * 500)},
            "spec.validationActions[1]",
        ),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
            {
                "policyName": "a",
                "validationActions": ["Deny"],
                "matchResources": {
                    "resourceRules": [{**RULE, "resourceNames": Unsliced(["a"] * 500)}]
                },
            },
            "spec.matchResources.resourceRules[0].resourceNames[1]",
        ),
    ],
)
def test_duplicates_are_found_without_comparing_all_pairs(group, plural, spec, field):
    document = {"metadata": {"name": "a"}, "spec": spec}
    kind = KINDS.find(group, "v1", plural)
    kind.default(document)
    causes = kind.validate(document, None, "somebody").causes
    assert causes[0].field == field
    assert len(causes) == MAX_CAUSES
