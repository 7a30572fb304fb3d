"""ValidatingAdmissionPolicies: rules in CEL that an object has to keep before it is stored.

A policy says what has to hold, its bindings where, with which parameters, and what follows where it
does not: a refusal, a warning, or a note in the audit log.  Texts and codes are those of Kubernetes
(its validating policy plugin).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from corral.api.errors import ApiError, Cause, Details, Forbidden, Invalid, TooLarge
from corral.api.kind import Kind, Version
from corral.api.kinds.admissionregistration import BINDING, POLICY
from corral.api.kinds.admissionregistration.match_rules import GROUP
from corral.api.kinds.admissionregistration.policies import (
    ALLOW,
    AUDIT,
    DENY,
    WARN,
)
from corral.api.kinds.table import KindTable
from corral.api.object import Document, Key
from corral.api.selectors import label_selector
from corral.server.admission.dynamic.attributes import Act, namespace_labels, refused
from corral.server.admission.dynamic.configuration_cache import Configured
from corral.server.admission.dynamic.match_conditions import bindings
from corral.server.admission.dynamic.matching import Selection, is_exempt
from corral.server.admission.dynamic.policy_evaluation import Breach, Policy, judged, read_policy
from corral.server.authz.authorizer import Authorizer
from corral.server.request.call import Call, storage
from corral.store import Store

FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"
_REFUSALS: Final[Mapping[str, type[ApiError]]] = {
    "Forbidden": Forbidden,
    "Invalid": Invalid,
    "RequestEntityTooLarge": TooLarge,
}

log = structlog.get_logger()


class ParamError(Exception):
    """The parameters of a policy cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Where a policy is to be kept."""

    name: str
    policy: str
    selection: Selection
    params: Document | None
    actions: Sequence[str]


def read_binding(document: Document) -> Binding:
    """Reads a ValidatingAdmissionPolicyBinding that is valid."""
    spec = document["spec"]
    return Binding(
        name=document["metadata"]["name"],
        policy=spec["policyName"],
        selection=Selection.of(
            spec.get("matchResources") or {},
            "resourceRules",
            "excludeResourceRules",
            needs_rules=False,
        ),
        params=spec.get("paramRef"),
        actions=spec["validationActions"],
    )


class Policies:
    """The reviewer that keeps all policies which are bound."""

    def __init__(self, store: Store, kinds: KindTable, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._kinds = kinds
        self._policies = Configured(store, POLICY, read_policy)
        self._bindings = Configured(store, BINDING, read_binding)

    def concerns(self, call: Call) -> bool:
        """Whether any policy is bound at all."""
        return bool(self._bindings) and bool(self._policies) and not is_exempt(call, GROUP)

    async def review(self, act: Act) -> None:
        """Refuse an act that breaks a policy, by the first that it breaks; warn of others."""
        namespace = namespace_labels(self._store, act)
        bound = self._bindings.all()
        refusals: list[ApiError] = []
        for policy in self._policies.all():
            version = policy.selection.matches(act, namespace)
            if version is None:
                continue
            for binding in bound:
                if binding.policy != policy.name:
                    continue
                if binding.selection.matches(act, namespace) is None:
                    continue
                for breach in self._breaches(policy, binding, act, version):
                    refusals += _followed(policy, binding, act, breach)
        if refusals:
            raise refusals[0]

    def _breaches(
        self, policy: Policy, binding: Binding, act: Act, version: Version
    ) -> Iterator[Breach]:
        try:
            every = self._params(policy, binding, act)
        except ParamError as error:
            if policy.fails_open:
                log.warning("policy has no parameters", policy=policy.name, why=str(error))
                return
            yield Breach(f"failed to configure binding: {error}")
            return
        given = bindings(act, version, self._authorizer)
        given["namespaceObject"] = self._namespace(act)
        for params in every:
            if policy.params is not None:
                given["params"] = params
            yield from judged(policy, given, act.note)

    def _namespace(self, act: Act) -> Document | None:
        if not act.call.kind.namespaced:
            return None
        record = self._store.latest("namespaces", Key("", act.call.namespace))
        return record.document() if record is not None else None

    def _params(self, policy: Policy, binding: Binding, act: Act) -> Sequence[Document | None]:
        """The objects that hold a policy's parameters for an act; None stands for none at all."""
        if policy.params is None or binding.params is None:
            return [None]
        kind = self._param_kind(policy.params)
        namespace = _param_namespace(kind, binding.params, act)
        found = list(self._found(kind, namespace, binding.params))
        if not found and binding.params.get("parameterNotFoundAction") != ALLOW:
            raise ParamError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return found

    def _param_kind(self, params: Document) -> Kind:
        group, _, version = params["apiVersion"].rpartition("/")
        kind = self._kinds.by_kind(group, params["kind"])
        if kind is None or all(each.name != version for each in kind.versions):
            name = f"{params['apiVersion']}, Kind={params['kind']}"
            raise ParamError(f"failed to find resource referenced by paramKind: '{name}'")
        return kind

    def _found(self, kind: Kind, namespace: str, reference: Document) -> Iterator[Document]:
        if name := reference.get("name"):
            record = self._store.latest(storage(kind), Key(namespace, name))
            if record is not None:
                yield record.document()
            return
        selector = label_selector(reference.get("selector") or {})
        for record in self._store.objects(storage(kind), namespace):
            if selector.matches(record.labels):
                yield record.document()


def _param_namespace(kind: Kind, reference: Document, act: Act) -> str:
    """The namespace in which parameters are looked for.  Raises ParamError."""
    told: str = reference.get("namespace") or ""
    if not kind.namespaced:
        if told:
            raise ParamError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        return ""
    if told or act.call.namespace:
        return told or act.call.namespace
    raise ParamError(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )


# ------------------------------------------------------------------- following


def _followed(policy: Policy, binding: Binding, act: Act, breach: Breach) -> Iterator[ApiError]:
    """What follows from a breach: warnings are given, refusals are answered."""
    named = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
    if WARN in binding.actions:
        act.call.warnings.append(f"Validation failed for {named}: {breach.message}")
    if AUDIT in binding.actions:
        told = {
            "message": breach.message,
            "policy": policy.name,
            "binding": binding.name,
            "validationActions": list(binding.actions),
        }
        act.note(FAILURE, msgspec.json.encode([told]).decode())
    if DENY in binding.actions:
        yield _refusal(act, f"{named} denied request: {breach.message}", breach.reason)


def _refusal(act: Act, why: str, reason: str) -> ApiError:
    known = refused(act, why)
    assert known.details is not None
    details = Details(
        name=known.details.name,
        group=known.details.group,
        kind=known.details.kind,
        causes=[Cause("", why, "")],
    )
    return _REFUSALS.get(reason, Invalid)(known.message, details=details)
