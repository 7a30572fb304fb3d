"""Subresources of Kubernetes that the server answers: scale, binding, eviction, finalize, token.

``status`` and ``approval`` are ordinary updates; logs, exec and port-forward, which nodes answer,
are in ``corral.server.node_proxy.forwarding``.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lightkube.models import autoscaling_v1

from corral.api import table
from corral.api.encoding import encode
from corral.api.errors import BadRequest, Cause, MethodNotAllowed
from corral.api.go_decoder import first_error
from corral.api.kind import Kind, Scale, at
from corral.api.kinds.autoscaling.scale import SCALE
from corral.api.kinds.workloads.template import selector_text
from corral.api.object import Document
from corral.api.request import Response
from corral.api.time import rfc3339
from corral.server.registry import apply
from corral.server.registry.rest import Rest, read_patch
from corral.server.request import body, query
from corral.server.request.accept import Form
from corral.server.request.call import Call, json_response, storage
from corral.server.strategy import object_meta, validation
from corral.server.subresources import eviction, token_request

_SCALE_LIMIT = 2**31 - 1


def serves(kind: Kind, subresource: str) -> bool:
    """Return whether a kind has a subresource that ``answer`` serves."""
    if subresource == "scale":
        return kind.scale is not None
    return subresource in kind.updates or (kind.resource, subresource) in _OTHERS


async def answer(rest: Rest, call: Call) -> Response:
    """Serve a subresource for which ``serves`` is true.  Raises MethodNotAllowed."""
    if call.subresource in call.kind.updates:
        verbs: Mapping[str, Callable[[Call], Awaitable[Response]]] = {
            "get": rest.get,
            "update": rest.update,
            "patch": rest.patch,
        }
        serve = verbs.get(call.verb)
        if serve is not None:
            return await serve(call)
    elif call.subresource == "scale" and call.kind.scale is not None:
        if call.verb in ("get", "update", "patch"):
            return await _scale(rest, call, call.kind.scale)
    else:
        verb, other = _OTHERS[call.kind.resource, call.subresource]
        if call.verb == verb:
            return await other(rest, call)
    raise MethodNotAllowed(
        f"{call.verb} is not supported on {call.subresource} of resources of kind "
        f'"{call.kind.name}"'
    )


# ---------------------------------------------------------------------- scale


async def _scale(rest: Rest, call: Call, paths: Scale) -> Response:
    """Get or change an object's autoscaling/v1 Scale, by the kind's paths to its replicas."""
    record = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key)
    old = record.document()
    current = scale_of(old, paths)
    if call.verb == "get":
        return _scale_response(rest, call, current)
    dry = query.dry_run([call.query.get("dryRun", "")], call.options)
    if call.verb == "update":
        desired = body.read(call)
    elif apply.is_applied(call):
        desired = apply.apply_scale(rest, call, old, current, paths)
    else:
        desired = read_patch(call).change(current)
    _require_scale(call, desired, current)
    desired = await rest.reviewers.mutate(call, desired, current)
    document = record.document()
    replicas = _replicas(call, desired)
    _set_at(document, paths.spec_replicas, replicas)
    revision = at(desired, "metadata", "resourceVersion")
    document["metadata"]["resourceVersion"] = revision or old["metadata"]["resourceVersion"]
    rest.require_fit(call, document, old)
    document = rest.prepare_update(call, document, old)
    await rest.reviewers.validate(call, scale_of(document, paths), current)
    changed = rest.finish_update(call, record, document, old)
    if changed is None:
        await rest.store.durable(record)
    elif not dry:
        changed = (await rest.put(call, changed)).document()
    return _scale_response(rest, call, scale_of(changed or old, paths))


def _scale_response(rest: Rest, call: Call, scale: Document) -> Response:
    """Return a Scale in the form that the client accepts."""
    metadata = scale["metadata"]
    if call.form is Form.PLAIN:
        return json_response(encode(scale))
    if call.form is Form.METADATA:
        return json_response(encode(table.partial(metadata, call.form_version)))
    include = call.query.get("includeObject", "Metadata")
    table.check_include(include)
    version, of_list = call.form_version, {"resourceVersion": metadata["resourceVersion"]}
    page = table.table(SCALE, metadata=of_list, version=version)
    beside = {"None": None, "Object": scale}.get(include, table.partial(metadata, version))
    cells = table.printed(table.cells(SCALE, scale), rest.now())
    page["rows"] = [{"cells": cells, "object": beside}]
    return json_response(encode(page))


def scale_of(document: Document, paths: Scale) -> Document:
    """Return an object's Scale."""
    metadata = document["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = at(document, *paths.spec_replicas)
    if replicas is None:
        # The default, shown: an autoscaler that read 0 would take the object for disabled.
        replicas = 1
    status: Document = {"replicas": at(document, *paths.status_replicas) or 0}
    if paths.label_selector and (selector := at(document, *paths.label_selector)):
        status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in fields if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _require_scale(call: Call, desired: Document, current: Document) -> None:
    """Refuse a body that is not this object's Scale.  Raises BadRequest and Conflict."""
    for field in ("apiVersion", "kind"):
        value = desired.get(field) or current[field]
        if value != current[field]:
            raise BadRequest(f"a Scale of autoscaling/v1 is expected: {field} is {value}")
    if fault := first_error(autoscaling_v1.Scale, desired):
        raise BadRequest(f'Scale in version "v1" cannot be handled as a Scale: {fault}')
    metadata, current_metadata = desired.get("metadata") or {}, current["metadata"]
    for field in ("name", "namespace"):
        value = metadata.get(field) or current_metadata.get(field)
        if value != current_metadata.get(field):
            raise BadRequest(
                f"the {field} of the Scale ({value}) does not match the {field} on the URL"
            )
    uid, current_uid = metadata.get("uid"), current_metadata["uid"]
    if uid and uid != current_uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current_uid}"
        raise object_meta.conflict(call.kind, call.name, why)


def _replicas(call: Call, desired: Document) -> int:
    replicas: Any = at(desired, "spec", "replicas") or 0
    if type(replicas) is not int:
        raise BadRequest(f"Scale: spec.replicas is not a whole number: {replicas!r}")
    if replicas < 0 or replicas > _SCALE_LIMIT:
        message = f"Invalid value: {replicas}: should be a non-negative integer"
        raise call.kind.invalid(call.name, [Cause(".spec.replicas", message)])
    return replicas


def _set_at(document: Document, path: tuple[str, ...], value: int) -> None:
    *above, last = path
    for step in above:
        document = document.setdefault(step, {})
    document[last] = value


# -------------------------------------------------------------------- binding


async def _bind(rest: Rest, call: Call) -> Response:
    """Assign a pod to a node, once (core/v1 Binding), as a scheduler does."""
    dry = query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
    binding = await rest.reviewers.admit_posted(call, body.read(call))
    node = at(binding, "target", "name")
    if not node or not isinstance(node, str):
        raise call.kind.invalid(
            call.name, [Cause("target.name", "Required value", "FieldValueRequired")]
        )
    record = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key)
    document = record.document()
    uid = at(binding, "metadata", "uid")
    if uid and uid != document["metadata"]["uid"]:
        raise object_meta.conflict(call.kind, call.name, "the UID in the binding is another pod's")
    if document["metadata"].get("deletionTimestamp"):
        raise object_meta.conflict(
            call.kind, call.name, f"pod {call.name} is being deleted, cannot be assigned to a host"
        )
    placed = at(document, "spec", "nodeName")
    if placed:
        raise object_meta.conflict(
            call.kind, call.name, f'pod {call.name} is already assigned to node "{placed}"'
        )
    document["spec"]["nodeName"] = node
    _set_scheduled(document, rfc3339(rest.now()))
    if not dry:
        await rest.store.write(storage(call.kind), call.key, document)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return json_response(encode({**status, "code": 201}), status=201)


def _set_scheduled(document: Document, now: str) -> None:
    status = document.setdefault("status", {})
    conditions = [each for each in status.get("conditions") or [] if each["type"] != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now})
    status["conditions"] = conditions


# ------------------------------------------------------------------- finalize


async def _finalize(rest: Rest, call: Call) -> Response:
    """Replace a namespace's ``spec.finalizers``, once its content is deleted."""
    presenter = rest.presenter(call)
    dry = query.dry_run([call.query.get("dryRun", "")], "UpdateOptions")
    sent = validation.incoming(call, body.read(call))
    record = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key)
    document = record.document()
    rest.require_fit(call, sent, document)
    sent = await rest.reviewers.mutate(call, sent, document)
    document["spec"] = {
        **(document.get("spec") or {}),
        "finalizers": at(sent, "spec", "finalizers"),
    }
    if not document["spec"]["finalizers"]:
        del document["spec"]["finalizers"]
    await rest.reviewers.validate(call, document, record.document())
    rest.require_newest(call.kind, call.key, record)
    if dry:
        return json_response(presenter.dry_run_result(document))
    return json_response(presenter.one(await rest.put(call, document)))


_OTHERS: Mapping[tuple[str, str], tuple[str, Callable[[Rest, Call], Awaitable[Response]]]] = {
    ("pods", "binding"): ("create", _bind),
    ("pods", "eviction"): ("create", eviction.answer),
    ("namespaces", "finalize"): ("update", _finalize),
    ("serviceaccounts", "token"): ("create", token_request.answer),
}
