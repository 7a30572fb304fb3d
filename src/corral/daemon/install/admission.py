"""Admission of an installation: webhooks for what a schema cannot say, and a policy for nodes.

The webhooks' names are KubeVirt's, since refusals carry them.  They fail closed: an object that
nobody has checked is not stored.  Nodes are let past them, for their reports must arrive while no
controllers run; the policy, which the API server evaluates itself, keeps them to their own VMIs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from corral.api.kind import Kind
from corral.api.kinds.admissionregistration.match_rules import GROUP
from corral.api.kinds.auth.certificate_signing_request import NODE_GROUP, NODE_USER_PREFIX
from corral.api.kinds.cdi.population import POPULATE
from corral.api.kinds.core.kinds import NODE
from corral.api.kinds.core.machine_nodes import SCHEDULABLE
from corral.api.kinds.core.node_addresses import WIREGUARD_KEY
from corral.api.kinds.corral.checkpoint import FAILED, READY
from corral.api.kinds.corral.checkpoint_kind import CHECKPOINT
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE_INSTANCE
from corral.api.kinds.kubevirt.migration import TARGET_NODE
from corral.api.kinds.vmi.derived import NODE_LABEL
from corral.api.kinds.vmi.migration_status import CONTROLLERS_FIELDS
from corral.api.kinds.vmi.user_data import USER_DATA_SECRET
from corral.api.object import Document
from corral.daemon.install.definitions import defined_kinds
from corral.daemon.install.options import CONTROLLERS, Options, document
from corral.server.admission.node_restriction import COMPLETE_FIELDS
from corral.server.authn.service_accounts import user_name
from corral.server.extension.webhooks import (
    EVICT_PATH,
    MUTATE_PATH,
    VALIDATE_PATH,
    mutates,
    validates,
)
from corral.server.subresources.kubevirt.evacuation import WEBHOOK as EVICTION_WEBHOOK

_API_VERSION: Final = f"{GROUP}/v1"
TIMEOUT_SECONDS: Final = 10
POLICY: Final = "corral-node-restriction"
CHECKPOINTS_POLICY: Final = "corral-checkpoint-restriction"
SOURCES_POLICY: Final = "corral-checkpoint-sources"
KEYS_POLICY: Final = "corral-wireguard-keys"
CLAIMS_POLICY: Final = "corral-claim-population"
_NOT_A_NODE: Final = {
    "name": "not-a-node",
    "expression": f"!('{NODE_GROUP}' in request.userInfo.groups)",
}
_NOT_ENDING: Final = {
    "name": "not-ending",
    "expression": (
        "!has(object.metadata.deletionTimestamp) || object.?spec != oldObject.?spec || "
        "object.?status != oldObject.?status"
    ),
}
"""Excludes the removal of finalizers: a namespace can be deleted while no controllers run."""

_CANONICAL_KEY: Final = "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"
"""32 bytes in base64, of whose last digit two bits are unused."""
_WITH_STATUS: Final = (CHECKPOINT.plural, f"{CHECKPOINT.plural}/status")


def documents(options: Options) -> Iterator[Document]:
    """Yield the configurations of webhooks."""
    for kind, webhooks in (
        ("MutatingWebhookConfiguration", _mutating(options)),
        ("ValidatingWebhookConfiguration", _validating(options)),
    ):
        yield document(_API_VERSION, kind, CONTROLLERS, webhooks=list(webhooks))


def _mutating(options: Options) -> Iterator[Document]:
    for kind in defined_kinds():
        if mutates(kind):
            name = f"{kind.plural}-mutator.{kind.group}"
            yield {
                **_webhook(name, kind, ("CREATE", "UPDATE"), MUTATE_PATH, options),
                "reinvocationPolicy": "IfNeeded",
            }


def _validating(options: Options) -> Iterator[Document]:
    yield _evictions(options)
    for kind in defined_kinds():
        if not validates(kind):
            continue
        by_name: dict[str, list[str]] = {}
        default = f"{kind.singular}-validator.{kind.group}"
        created, updated = kind.webhook or (default, default)
        by_name.setdefault(created, []).append("CREATE")
        by_name.setdefault(updated, []).append("UPDATE")
        for name, operations in by_name.items():
            yield _webhook(name, kind, operations, VALIDATE_PATH, options)


def _webhook(
    name: str, kind: Kind, operations: Sequence[str], path: str, options: Options
) -> dict[str, Any]:
    conditions = [_NOT_A_NODE, _NOT_ENDING, _not_our_status(options)]
    resource = {
        "apiGroups": [kind.group],
        "apiVersions": ["*"],
        "resources": [kind.plural],
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }
    rule = {**resource, "operations": list(operations)}
    return _served(options, name=name, path=path, conditions=conditions, rule=rule)


def _evictions(options: Options) -> Document:
    """Return the webhook that has machines migrate rather than evicts them."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["pods/eviction"],
        "scope": "Namespaced",
    }
    only_machines = {
        "name": "only-machines",
        "expression": "object.metadata.name.startsWith('virt-launcher')",
    }
    webhook = _served(
        options, name=EVICTION_WEBHOOK, path=EVICT_PATH, conditions=[only_machines], rule=rule
    )
    return {**webhook, "sideEffects": "NoneOnDryRun"}


def _served(
    options: Options, *, name: str, path: str, conditions: Sequence[Document], rule: Document
) -> Document:
    """Return a webhook that the controllers serve at a path."""
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "namespace": options.namespace,
                "name": CONTROLLERS,
                "path": path,
                "port": 443,
            }
        },
        "failurePolicy": "Fail",
        "matchConditions": list(conditions),
        "matchPolicy": "Equivalent",
        "rules": [rule],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }


def _not_our_status(options: Options) -> Document:
    """Return the condition that excludes updates of status and metadata by our controllers.

    They write the status of each VMI several times, and would be asked about it themselves.
    """
    account = user_name(options.namespace, CONTROLLERS)
    return {
        "name": "not-our-status",
        "expression": (
            f"request.userInfo.username != '{account}' || request.operation == 'CREATE' || "
            "object.?spec != oldObject.?spec"
        ),
    }


def policies(options: Options) -> Iterator[Document]:
    """Yield the policies, each with its binding."""
    yield from _of_nodes()
    yield from _of_checkpoints()
    yield from _of_sources()
    yield from _of_keys()
    yield from _of_claims(options)


def _of_nodes() -> Iterator[Document]:
    """Yield the policy that keeps nodes to the VMIs that are placed on them."""
    kind = VIRTUAL_MACHINE_INSTANCE
    state = "oldObject.?status.migrationState"
    unchanged = (
        ("object.spec == oldObject.spec", "change the spec of a VMI"),
        (
            (
                "object.metadata.?ownerReferences.orValue([]) == "
                "oldObject.metadata.?ownerReferences.orValue([])"
            ),
            "change the owners of a VMI",
        ),
        (
            # The node may read the Secret that this annotation names.
            (
                f"object.metadata.?annotations[?'{USER_DATA_SECRET}'] == "
                f"oldObject.metadata.?annotations[?'{USER_DATA_SECRET}']"
            ),
            "change the user data of a VMI",
        ),
        (
            (
                "object.?status.nodeName.orValue('') == oldObject.?status.nodeName.orValue('') || "
                "(object.?status.nodeName.orValue('') == variables.node && "
                f"{state}.?targetNode.orValue('') == variables.node && "
                f"{state}.?sourceNode.orValue('') == oldObject.?status.nodeName.orValue('') && "
                f"!{state}.?failed.orValue(false))"
            ),
            "move a VMI",
        ),
        *(
            (
                f"object.?status.migrationState.?{name}.orValue('') == {state}.?{name}.orValue('')",
                f"change status.migrationState.{name} of a VMI",
            )
            for name in CONTROLLERS_FIELDS
        ),
        (
            (
                f"oldObject.metadata.?labels[?'{NODE_LABEL}'].orValue('') == variables.node || "
                f"oldObject.metadata.?labels[?'{TARGET_NODE}'].orValue('') == variables.node"
            ),
            "change a VMI of another node",
        ),
    )
    yield _node_policy(POLICY, kind, (kind.plural,), unchanged)
    yield _bound(POLICY)


def _of_checkpoints() -> Iterator[Document]:
    """Yield the policy that keeps nodes to their own checkpoints."""
    before, after = "oldObject.?status", "object.?status"
    owner, given = (f"{each}.nodeName.orValue('')" for each in (before, after))
    unchanged = (
        (f"{owner} == '' || {owner} == variables.node", "change a checkpoint of another node"),
        (
            f"{given} == {owner} || {given} == variables.node",
            "give a checkpoint to another node",
        ),
        (
            f"!{_is_true(before, FAILED)} || {_is_true(after, FAILED)}",
            "repair a checkpoint that has failed",
        ),
        *(
            (
                f"!{_is_true(before, READY)} || {after}.?{name} == {before}.?{name}",
                f"change status.{name} of a complete checkpoint",
            )
            for name in COMPLETE_FIELDS
        ),
    )
    yield _node_policy(CHECKPOINTS_POLICY, CHECKPOINT, _WITH_STATUS, unchanged)
    yield _bound(CHECKPOINTS_POLICY)


def _of_sources() -> Iterator[Document]:
    """Yield the policy that lets only the node of the source begin a checkpoint.

    The VMIs of its namespace are its parameters: it is evaluated for each of them, and holds if
    none of them is the source. Without any VMI nobody may begin.
    """
    owner = "oldObject.?status.nodeName.orValue('')"
    before, after = (f"{each}.?status.sourceUID.orValue('')" for each in ("oldObject", "object"))
    other = "params.metadata.name != object.spec.source.name"
    rules = (
        (
            (
                f"{other} || {owner} == variables.node || "
                f"params.metadata.?labels[?'{NODE_LABEL}'].orValue('') == variables.node"
            ),
            "begin a checkpoint of a VMI of another node",
        ),
        (
            f"{other} || {after} == {before} || ({before} == '' && {after} == params.metadata.uid)",
            "change the source of a checkpoint",
        ),
    )
    begins = {"name": "begins", "expression": f"{owner} == '' || {after} != {before}"}
    policy = _node_policy(SOURCES_POLICY, CHECKPOINT, _WITH_STATUS, rules, begins)
    yield from _of_each(policy, VIRTUAL_MACHINE_INSTANCE, {}, otherwise="Deny")


def _of_keys() -> Iterator[Document]:
    """Yield the policy that gives no node the WireGuard key of another.

    The Nodes of machines are its parameters, and not all Nodes: it is evaluated for each of them at
    the heartbeats of all kubelets. A key has other spellings in base64: only the canonical one is
    stored.
    """
    key = f"metadata.?annotations[?'{WIREGUARD_KEY}'].orValue('')"
    rules = (
        (
            f"params.metadata.name == object.metadata.name || params.{key} != object.{key}",
            "have the WireGuard key of another node",
        ),
        (f"object.{key}.matches('{_CANONICAL_KEY}')", "have a WireGuard key that is none"),
    )
    changes = {
        "name": "changes-its-key",
        "expression": f"object.{key} != '' && "
        f"(oldObject == null || object.{key} != oldObject.{key})",
    }
    resources = (NODE.plural, f"{NODE.plural}/status")
    policy = _node_policy(KEYS_POLICY, NODE, resources, rules, changes, creates=True)
    labeled_so = [{"key": SCHEDULABLE, "operator": "Exists"}]
    yield from _of_each(policy, NODE, {"matchExpressions": labeled_so}, otherwise="Allow")


def _of_each(
    policy: Document, kind: Kind, selector: Document, *, otherwise: str
) -> Iterator[Document]:
    """Yield a policy that is evaluated for each selected object of a kind, with its binding.

    otherwise: what holds where there is no object: Allow or Deny.
    """
    policy["spec"]["paramKind"] = {"apiVersion": kind.api_version, "kind": kind.name}
    yield policy
    bound = _bound(policy["metadata"]["name"])
    bound["spec"]["paramRef"] = {"selector": selector, "parameterNotFoundAction": otherwise}
    yield bound


def _is_true(status: str, condition: str) -> str:
    """Return the expression for a condition of a status that is True."""
    is_it = f"each.type == '{condition}' && each.status == 'True'"
    return f"{status}.conditions.orValue([]).exists(each, {is_it})"


def _node_policy(
    name: str,
    kind: Kind,
    resources: Sequence[str],
    rules: Iterable[tuple[str, str]],
    *conditions: Document,
    creates: bool = False,
) -> Document:
    """Return a policy for updates by nodes; a rule is an expression and what it forbids.

    creates: whether it holds for what nodes create, too.
    """
    return document(
        _API_VERSION,
        "ValidatingAdmissionPolicy",
        name,
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"] if creates else ["UPDATE"],
                        "resources": list(resources),
                    }
                ]
            },
            "matchConditions": [
                {"name": "a-node", "expression": f"'{NODE_GROUP}' in request.userInfo.groups"},
                *conditions,
            ],
            "variables": [
                {
                    "name": "node",
                    "expression": f"request.userInfo.username.substring({len(NODE_USER_PREFIX)})",
                }
            ],
            "validations": [
                {
                    "expression": expression,
                    "messageExpression": (
                        f"'node \"' + variables.node + '\" is not allowed to {what}'"
                    ),
                    "reason": "Forbidden",
                }
                for expression, what in rules
            ],
        },
    )


def _of_claims(options: Options) -> Iterator[Document]:
    """Yield the policy that lets only our controllers have a claim filled by annotation.

    The annotation may name a claim of another namespace: who may copy that was asked of the author
    of the DataVolume that the claim is made for.
    """
    annotation = f"metadata.?annotations[?'{POPULATE}'].orValue('')"
    account = user_name(options.namespace, CONTROLLERS)
    yield document(
        _API_VERSION,
        "ValidatingAdmissionPolicy",
        CLAIMS_POLICY,
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["persistentvolumeclaims"],
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "not-the-controllers",
                    "expression": f"request.userInfo.username != '{account}'",
                }
            ],
            "validations": [
                {
                    "expression": f"object.{annotation} == "
                    f"(oldObject == null ? '' : oldObject.{annotation})",
                    "message": f"metadata.annotations[{POPULATE}]: only corral's controllers set "
                    "this annotation: create a DataVolume, which makes the claim",
                    "reason": "Forbidden",
                }
            ],
        },
    )
    yield _bound(CLAIMS_POLICY)


def _bound(policy: str) -> Document:
    return document(
        _API_VERSION,
        "ValidatingAdmissionPolicyBinding",
        policy,
        spec={"policyName": policy, "validationActions": ["Deny"]},
    )
