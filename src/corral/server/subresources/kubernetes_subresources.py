"""Subresources that are answered here: scale, binding, eviction, finalize, token.

``status`` and ``approval`` are ordinary updates; what streams from a machine is in
``corral.server.node_proxy.forwarding``.
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
    """Whether a kind has a subresource."""
    if subresource == "scale":
        return kind.scale is not None
    return subresource in kind.updates or (kind.resource, subresource) in _OTHERS


async def answer(rest: Rest, call: Call) -> Response:
    """Serve a subresource that ``serves`` said yes to.  Raises MethodNotAllowed."""
    if call.subresource in call.kind.updates:
        acts: Mapping[str, Callable[[Call], Awaitable[Response]]] = {
            "get": rest.get,
            "update": rest.update,
            "patch": rest.patch,
        }
        act = acts.get(call.verb)
        if act is not None:
            return await act(call)
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
    """autoscaling/v1 Scale: how many are wanted, seen through one form for every kind."""
    record = object_meta.existing(rest.store, call.kind, storage(call.kind), call.key)
    old = record.document()
    shown = scale_of(old, paths)
    if call.verb == "get":
        return _scale_shown(rest, call, shown)
    dry = query.dry_run([call.query.get("dryRun", "")], call.options)
    if call.verb == "update":
        wanted = body.read(call)
    elif apply.is_applied(call):
        wanted = apply.apply_scale(rest, call, old, shown, paths)
    else:
        wanted = read_patch(call).change(shown)
    _require_scale(call, wanted, shown)
    wanted = await rest.reviewers.mutate(call, wanted, shown)
    document = record.document()
    replicas = _replicas(call, wanted)
    _put(document, paths.spec_replicas, replicas)
    revision = at(wanted, "metadata", "resourceVersion")
    document["metadata"]["resourceVersion"] = revision or old["metadata"]["resourceVersion"]
    rest.require_fit(call, document, old)
    document = rest.prepare_update(call, document, old)
    await rest.reviewers.validate(call, scale_of(document, paths), shown)
    changed = rest.finish_update(call, record, document, old)
    if changed is None:
        await rest.store.durable(record)
    elif not dry:
        changed = (await rest.put(call, changed)).document()
    return _scale_shown(rest, call, scale_of(changed or old, paths))


def _scale_shown(rest: Rest, call: Call, shown: Document) -> Response:
    """A Scale in the form that the client accepts."""
    metadata = shown["metadata"]
    if call.form is Form.PLAIN:
        return json_response(encode(shown))
    if call.form is Form.METADATA:
        return json_response(encode(table.partial(metadata, call.form_version)))
    include = call.query.get("includeObject", "Metadata")
    table.check_include(include)
    version, of_list = call.form_version, {"resourceVersion": metadata["resourceVersion"]}
    page = table.table(SCALE, metadata=of_list, version=version)
    beside = {"None": None, "Object": shown}.get(include, table.partial(metadata, version))
    cells = table.printed(table.cells(SCALE, shown), rest.now())
    page["rows"] = [{"cells": cells, "object": beside}]
    return json_response(encode(page))


def scale_of(document: Document, paths: Scale) -> Document:
    metadata = document["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = at(document, *paths.spec_replicas)
    if replicas is None:
        # Who names no number gets one machine; an autoscaler that read none would leave it alone.
        replicas = 1
    status: Document = {"replicas": at(document, *paths.status_replicas) or 0}
    if paths.label_selector and (selector := at(document, *paths.label_selector)):
        status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in shown if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _require_scale(call: Call, wanted: Document, shown: Document) -> None:
    """Refuse what is no Scale, or that of another object.  Raises BadRequest and Conflict."""
    for field in ("apiVersion", "kind"):
        said = wanted.get(field) or shown[field]
        if said != shown[field]:
            raise BadRequest(f"a Scale of autoscaling/v1 is expected: {field} is {said}")
    if fault := first_error(autoscaling_v1.Scale, wanted):
        raise BadRequest(f'Scale in version "v1" cannot be handled as a Scale: {fault}')
    metadata, known = wanted.get("metadata") or {}, shown["metadata"]
    for field in ("name", "namespace"):
        said = metadata.get(field) or known.get(field)
        if said != known.get(field):
            raise BadRequest(
                f"the {field} of the Scale ({said}) does not match the {field} on the URL"
            )
    uid = metadata.get("uid")
    if uid and uid != known["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {known['uid']}"
        raise object_meta.conflict(call.kind, call.name, why)


def _replicas(call: Call, wanted: Document) -> int:
    replicas: Any = at(wanted, "spec", "replicas") or 0
    if type(replicas) is not int:
        raise BadRequest(f"Scale: spec.replicas is not a whole number: {replicas!r}")
    if replicas < 0 or replicas > _SCALE_LIMIT:
        message = f"Invalid value: {replicas}: should be a non-negative integer"
        raise call.kind.invalid(call.name, [Cause(".spec.replicas", message)])
    return replicas


def _put(document: Document, path: tuple[str, ...], value: int) -> None:
    *above, last = path
    for step in above:
        document = document.setdefault(step, {})
    document[last] = value


# -------------------------------------------------------------------- binding


async def _bind(rest: Rest, call: Call) -> Response:
    """Put a pod on a node (core/v1 Binding): what a scheduler does, once."""
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
    _scheduled(document, rfc3339(rest.now()))
    if not dry:
        await rest.store.write(storage(call.kind), call.key, document)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return json_response(encode({**status, "code": 201}), status=201)


def _scheduled(document: Document, now: str) -> None:
    status = document.setdefault("status", {})
    conditions = [each for each in status.get("conditions") or [] if each["type"] != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": now})
    status["conditions"] = conditions


# ------------------------------------------------------------------- finalize


async def _finalize(rest: Rest, call: Call) -> Response:
    """Replace a namespace's ``spec.finalizers``: it is empty now, and may go."""
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
