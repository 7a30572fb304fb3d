"""MutatingAdmissionPolicy and its binding."""

from collections.abc import Iterator
from typing import Final

from lightkube.models.admissionregistration_v1 import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
)

from corral.api.errors import Cause
from corral.api.kind import Column, at
from corral.api.kinds.admissionregistration.match_rules import GROUP
from corral.api.kinds.admissionregistration.policies import param_kind_cell, param_ref_cell
from corral.api.kinds.causes import required
from corral.api.kinds.columns import age, field, length
from corral.api.kinds.unimplemented.row import unimplemented
from corral.api.object import Document

_V1: Final = f"{GROUP}/v1"
_WHY: Final = "corral changes objects by webhooks, not by policies"
_CATEGORIES: Final = ("api-extensions",)


def _check_policy(document: Document) -> Iterator[Cause]:
    if not at(document, "spec", "mutations"):
        yield required("spec.mutations", "mutations must contain at least one item")
    if not at(document, "spec", "matchConstraints", "resourceRules"):
        yield required("spec.matchConstraints")


def _check_binding(document: Document) -> Iterator[Cause]:
    if not at(document, "spec", "policyName"):
        yield required("spec.policyName")


KINDS = (
    unimplemented(
        MutatingAdmissionPolicy,
        "mutatingadmissionpolicies",
        _V1,
        length("Mutations", "spec", "mutations", description="number of its mutations"),
        Column(
            name="ParamKind",
            cell=param_kind_cell,
            description="the kind of objects that hold the policy's parameters",
        ),
        age(),
        why=_WHY,
        categories=_CATEGORIES,
        causes=_check_policy,
    ),
    unimplemented(
        MutatingAdmissionPolicyBinding,
        "mutatingadmissionpolicybindings",
        _V1,
        field("PolicyName", "spec", "policyName", description="the policy that is applied"),
        Column(
            name="ParamRef",
            cell=param_ref_cell,
            description="the object that holds the policy's parameters",
        ),
        age(),
        why=_WHY,
        categories=_CATEGORIES,
        causes=_check_binding,
    ),
)
