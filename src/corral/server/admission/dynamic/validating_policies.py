"""ValidatingAdmissionPolicies: validations in CEL of objects to be stored.

A policy has the validations, its bindings select objects, parameters and actions: deny, warn, or an
audit annotation.  Messages and codes are those of Kubernetes' validating policy plugin.
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
from corral.server.admission.dynamic.attributes import (
    AdmissionAttributes,
    namespace_labels,
    new_forbidden,
)
from corral.server.admission.dynamic.configuration_cache import ConfigurationCache
from corral.server.admission.dynamic.match_conditions import cel_bindings
from corral.server.admission.dynamic.matching import Selection, is_exempt
from corral.server.admission.dynamic.policy_evaluation import (
    Policy,
    Violation,
    evaluate_policy,
    read_policy,
)
from corral.server.authz.authorizer import Authorizer
from corral.server.request.call import Call, storage
from corral.store import Store

FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"
_ERRORS: Final[Mapping[str, type[ApiError]]] = {
    "Forbidden": Forbidden,
    "Invalid": Invalid,
    "RequestEntityTooLarge": TooLarge,
}

log = structlog.get_logger()


class ParamError(Exception):
    """Parameters of a policy that cannot be resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A parsed ValidatingAdmissionPolicyBinding."""

    name: str
    policy: str
    selection: Selection
    params: Document | None
    actions: Sequence[str]


def read_binding(document: Document) -> Binding:
    """Parse a valid ValidatingAdmissionPolicyBinding."""
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


class PolicyReviewer:
    """The reviewer that enforces all bound policies."""

    def __init__(self, store: Store, kinds: KindTable, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._kinds = kinds
        self._policies = ConfigurationCache(store, POLICY, read_policy)
        self._bindings = ConfigurationCache(store, BINDING, read_binding)

    def handles(self, call: Call) -> bool:
        """Return whether there are policies and bindings."""
        return bool(self._bindings) and bool(self._policies) and not is_exempt(call, GROUP)

    async def review(self, attr: AdmissionAttributes) -> None:
        """Evaluate all matching policies; raise the first denial."""
        namespace = namespace_labels(self._store, attr)
        bound = self._bindings.all()
        errors: list[ApiError] = []
        for policy in self._policies.all():
            version = policy.selection.matches(attr, namespace)
            if version is None:
                continue
            for binding in bound:
                if binding.policy != policy.name:
                    continue
                if binding.selection.matches(attr, namespace) is None:
                    continue
                for violation in self._violations(policy, binding, attr, version):
                    errors += _enforce(policy, binding, attr, violation)
        if errors:
            raise errors[0]

    def _violations(
        self, policy: Policy, binding: Binding, attr: AdmissionAttributes, version: Version
    ) -> Iterator[Violation]:
        try:
            params_list = self._params(policy, binding, attr)
        except ParamError as error:
            if policy.fails_open:
                log.warning("policy ignored: no parameters", policy=policy.name, error=str(error))
                return
            yield Violation(f"failed to configure binding: {error}")
            return
        variables = cel_bindings(attr, version, self._authorizer)
        variables["namespaceObject"] = self._namespace(attr)
        for params in params_list:
            if policy.params is not None:
                variables["params"] = params
            yield from evaluate_policy(policy, variables, attr.add_annotation)

    def _namespace(self, attr: AdmissionAttributes) -> Document | None:
        if not attr.call.kind.namespaced:
            return None
        record = self._store.latest("namespaces", Key("", attr.call.namespace))
        return record.document() if record is not None else None

    def _params(
        self, policy: Policy, binding: Binding, attr: AdmissionAttributes
    ) -> Sequence[Document | None]:
        """Return the parameter objects of a policy; [None] for a policy without parameters."""
        if policy.params is None or binding.params is None:
            return [None]
        kind = self._param_kind(policy.params)
        namespace = _param_namespace(kind, binding.params, attr)
        params_found = list(self._find_params(kind, namespace, binding.params))
        if not params_found and binding.params.get("parameterNotFoundAction") != ALLOW:
            raise ParamError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return params_found

    def _param_kind(self, params: Document) -> Kind:
        group, _, version = params["apiVersion"].rpartition("/")
        kind = self._kinds.by_kind(group, params["kind"])
        if kind is None or all(each.name != version for each in kind.versions):
            name = f"{params['apiVersion']}, Kind={params['kind']}"
            raise ParamError(f"failed to find resource referenced by paramKind: '{name}'")
        return kind

    def _find_params(self, kind: Kind, namespace: str, reference: Document) -> Iterator[Document]:
        if name := reference.get("name"):
            record = self._store.latest(storage(kind), Key(namespace, name))
            if record is not None:
                yield record.document()
            return
        selector = label_selector(reference.get("selector") or {})
        for record in self._store.objects(storage(kind), namespace):
            if selector.matches(record.labels):
                yield record.document()


def _param_namespace(kind: Kind, reference: Document, attr: AdmissionAttributes) -> str:
    """Return the namespace of parameters.  Raises ParamError."""
    namespace: str = reference.get("namespace") or ""
    if not kind.namespaced:
        if namespace:
            raise ParamError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        return ""
    if namespace or attr.call.namespace:
        return namespace or attr.call.namespace
    raise ParamError(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )


def _enforce(
    policy: Policy, binding: Binding, attr: AdmissionAttributes, violation: Violation
) -> Iterator[ApiError]:
    """Apply a binding's actions to a violation: add warnings and annotations, yield errors."""
    name = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
    if WARN in binding.actions:
        attr.call.warnings.append(f"Validation failed for {name}: {violation.message}")
    if AUDIT in binding.actions:
        annotation = {
            "message": violation.message,
            "policy": policy.name,
            "binding": binding.name,
            "validationActions": list(binding.actions),
        }
        attr.add_annotation(FAILURE, msgspec.json.encode([annotation]).decode())
    if DENY in binding.actions:
        yield _error(attr, f"{name} denied request: {violation.message}", violation.reason)


def _error(attr: AdmissionAttributes, why: str, reason: str) -> ApiError:
    forbidden = new_forbidden(attr, why)
    assert forbidden.details is not None
    details = Details(
        name=forbidden.details.name,
        group=forbidden.details.group,
        kind=forbidden.details.kind,
        causes=[Cause("", why, "")],
    )
    return _ERRORS.get(reason, Invalid)(forbidden.message, details=details)
