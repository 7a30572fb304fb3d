"""Reports objects damaged on disk when the manager starts."""

import structlog

from corral.api.object import Document
from corral.reconcile.context import ControllerContext
from corral.server.app import ApiServer
from corral.server.request.call import storage
from corral.store import Damaged

REASON = "ObjectDamaged"
log = structlog.get_logger()


def report_damaged(server: ApiServer, context: ControllerContext) -> None:
    """Log each damaged object and record an event about it."""
    recorder = context.recorder("corral")
    if repair := server.store.wal_repair:
        log.error("write-ahead log was damaged", repair=repair)
    for each in server.store.damaged:
        log.error("object damaged on disk", kind=each.kind, object=str(each.key))
        recorder.event(
            _reference(server, each),
            "Warning",
            REASON,
            "It cannot be read and is in no list. Stop corral and run corral restore --damaged FILE"
            " with a backup that holds it, or delete it",
        )


def _reference(server: ApiServer, damaged: Damaged) -> Document:
    """Return the reference of an event to the object (core/v1 ObjectReference)."""
    kind = next((each for each in server.kinds if storage(each) == damaged.kind), None)
    namespace, name = damaged.key
    named = {"kind": damaged.kind.partition(".")[0], "name": name}
    if kind is not None:
        named |= {"apiVersion": kind.api_version, "kind": kind.name}
    return named | ({"namespace": namespace} if namespace else {})
