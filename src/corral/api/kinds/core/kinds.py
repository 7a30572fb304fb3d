"""Kubernetes' small kinds: Namespace, Node, Secret, ConfigMap, ServiceAccount and Lease.

Views, schemas and field descriptions come from the lightkube models; here are names, columns,
defaults and validation.
"""

import base64
import re
from collections.abc import Iterable
from itertools import chain

from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import ConfigMap, Namespace, Node, Secret, ServiceAccount

from corral.api.errors import MAX_CAUSES, Cause, limited, shortened
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid
from corral.api.kinds.columns import NONE, age, condition_status, field, length, text
from corral.api.kinds.core import secret_types
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import Document

LARGEST_DATA = 1024 * 1024
"""The most bytes of all values of a Secret or ConfigMap."""

_KEY = re.compile(r"[-._a-zA-Z0-9]+", re.ASCII)


def _namespace_default(document: Document) -> None:
    labels = document["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = document["metadata"].get("name", "")


def _namespace_default_create(document: Document) -> None:
    document["spec"] = {"finalizers": ["kubernetes"]}
    document["status"] = {"phase": "Active"}


def _namespace_keep(document: Document, old: Document, _user: str) -> None:
    """Keep the finalizers in the spec: only the subresource ``finalize`` changes them."""
    document["spec"] = old.get("spec", {})


def _namespace_validate(document: Document, old: Document | None, _user: str) -> Verdict:
    if old is None or document.get("status") == old.get("status"):
        return Verdict()
    is_being_deleted = bool(at(document, "metadata", "deletionTimestamp"))
    phase = at(document, "status", "phase") or ""
    expected, state = ("Terminating", "not empty") if is_being_deleted else ("Active", "empty")
    if phase == expected:
        return Verdict()
    why = f"may only be '{expected}' if `deletionTimestamp` is {state}"
    return Verdict([invalid("status.Phase", phase, why)])


NAMESPACE = kubernetes_kind(
    group="",
    plural="namespaces",
    short=("ns",),
    view=Namespace,
    namespaced=False,
    has_deletecollection=False,
    columns=(
        field("Status", "status", "phase", description="whether it is being deleted"),
        age(),
    ),
    selectable={"status.phase": text("status", "phase")},
    keep=_namespace_keep,
    default=_namespace_default,
    default_create=_namespace_default_create,
    validate=_namespace_validate,
)


def _node_default(document: Document) -> None:
    """Drop what Kubernetes does not encode: ``unschedulable`` is there only if it is true."""
    spec = document.get("spec")
    if isinstance(spec, dict) and spec.get("unschedulable") is False:
        del spec["unschedulable"]


def _node_status(document: Document) -> str:
    ready = condition_status(document, "Ready")
    words = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if at(document, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(document: Document) -> str:
    labels = at(document, "metadata", "labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(role for role in roles if role)) or NONE


def _node_address(address_type: str) -> Column:
    def cell(document: Document) -> str:
        for address in at(document, "status", "addresses") or ():
            if address.get("type") == address_type:
                return str(address.get("address"))
        return NONE

    name = address_type.replace("IP", "-IP")
    return Column(name=name, cell=cell, description="its address", priority=1)


def _node_info(name: str, fact: str) -> Column:
    def cell(document: Document) -> str:
        return at(document, "status", "nodeInfo", fact) or "<unknown>"

    return Column(name=name, cell=cell, description=f"its {fact}", priority=1)


NODE = kubernetes_kind(
    group="",
    plural="nodes",
    short=("no",),
    view=Node,
    namespaced=False,
    default=_node_default,
    status_on_create=True,
    columns=(
        Column(name="Status", cell=_node_status, description="whether pods can run on it"),
        Column(name="Roles", cell=_node_roles, description="roles that its labels name"),
        age(),
        field(
            "Version", "status", "nodeInfo", "kubeletVersion", description="version of its kubelet"
        ),
        _node_address("InternalIP"),
        _node_address("ExternalIP"),
        _node_info("OS-Image", "osImage"),
        _node_info("Kernel-Version", "kernelVersion"),
        _node_info("Container-Runtime", "containerRuntimeVersion"),
    ),
    selectable={
        "spec.unschedulable": lambda document: (
            "true" if at(document, "spec", "unschedulable") else "false"
        )
    },
)


def _check_data_keys(document: Document, *fields: str) -> Iterable[Cause]:
    for name in fields:
        for key in document.get(name) or ():
            if len(key) > 253 or not _KEY.fullmatch(key) or key in (".", ".."):
                yield Cause(
                    f"{name}[{key}]",
                    f'Invalid value: "{shortened(key)}": a valid config key must consist of '
                    "alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
                    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
                )


def _check_size(field_name: str, size: int) -> Iterable[Cause]:
    if size > LARGEST_DATA:
        message = f"Too long: may not be more than {LARGEST_DATA} bytes"
        yield Cause(field_name, message, "FieldValueTooLong")


def _check_immutable(document: Document, old: Document | None, *fields: str) -> Iterable[Cause]:
    """Check that an object with ``immutable: true`` keeps that, and its data."""
    if old is None or not old.get("immutable"):
        return
    for name in ("immutable", *fields):
        if document.get(name) != old.get(name):
            message = "Forbidden: field is immutable when `immutable` is set"
            yield Cause(name, message, "FieldValueForbidden")


def _secret_default(document: Document) -> None:
    document["type"] = document.get("type") or "Opaque"
    plain = document.pop("stringData", None)
    if isinstance(plain, dict):
        data = document.setdefault("data", {})
        for key, secret in plain.items():
            data[key] = base64.b64encode(str(secret).encode()).decode()


def _decoded_size(encoded: str) -> int:
    """Return the bytes of a base64 text after decoding."""
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def _secret_validate(document: Document, old: Document | None, _user: str) -> Verdict:
    causes = limited(chain(_check_data_keys(document, "data"), secret_types.faults(document, old)))
    size = sum(_decoded_size(one) for one in (document.get("data") or {}).values())
    causes += _check_size("data", size)
    causes += _check_immutable(document, old, "data")
    if old is not None and document.get("type") != old.get("type"):
        message = f'Invalid value: "{document.get("type")}": field is immutable'
        causes.append(Cause("type", message))
    return Verdict(causes)


SECRET = kubernetes_kind(
    group="",
    plural="secrets",
    view=Secret,
    status=False,
    columns=(
        field("Type", "type", description="the type of its data"),
        length("Data", "data", description="number of keys"),
        age(),
    ),
    selectable={"type": text("type")},
    default=_secret_default,
    validate=_secret_validate,
)


def _config_map_validate(document: Document, old: Document | None, _user: str) -> Verdict:
    texts = document.get("data") or {}
    binaries = document.get("binaryData") or {}
    causes = limited(_check_data_keys(document, "data", "binaryData"))
    for key in sorted(texts.keys() & binaries.keys())[:MAX_CAUSES]:
        message = f'Invalid value: "{shortened(key)}": duplicate of key present in binaryData'
        causes.append(Cause(f"data[{key}]", message))
    size = sum(len(str(one).encode()) for one in texts.values())
    size += sum(map(_decoded_size, binaries.values()))
    causes += _check_size("[]", size)
    causes += _check_immutable(document, old, "data", "binaryData")
    return Verdict(causes)


CONFIG_MAP = kubernetes_kind(
    group="",
    plural="configmaps",
    short=("cm",),
    view=ConfigMap,
    status=False,
    columns=(
        Column(
            name="Data",
            type="integer",
            cell=lambda document: (
                len(document.get("data") or ()) + len(document.get("binaryData") or ())
            ),
            description="number of keys",
        ),
        age(),
    ),
    validate=_config_map_validate,
)

SERVICE_ACCOUNT = kubernetes_kind(
    group="",
    plural="serviceaccounts",
    short=("sa",),
    view=ServiceAccount,
    status=False,
    columns=(
        length("Secrets", "secrets", description="number of secrets that pods may use"),
        age(),
    ),
)


def _lease_validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    causes = []
    spec = document.get("spec") or {}
    for name, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(name)
        if value is not None and value < least:
            bound = "must be greater than 0" if least else "must be greater than or equal to 0"
            causes.append(Cause(f"spec.{name}", f"Invalid value: {value}: {bound}"))
    return Verdict(causes)


LEASE = kubernetes_kind(
    group="coordination.k8s.io",
    plural="leases",
    view=Lease,
    status=False,
    columns=(
        field("Holder", "spec", "holderIdentity", description="the holder"),
        age(),
    ),
    validate=_lease_validate,
)

KINDS = (CONFIG_MAP, NAMESPACE, NODE, SECRET, SERVICE_ACCOUNT, LEASE)
