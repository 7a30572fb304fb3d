"""The dispatch of calls to the verbs of the API."""

from collections.abc import Mapping

from corral.api.errors import BadRequest, MethodNotAllowed
from corral.api.request import Response
from corral.server.registry import lists
from corral.server.registry.delete import delete, delete_collection
from corral.server.registry.rest import Rest
from corral.server.registry.watch import Watches
from corral.server.request import body, route
from corral.server.request.call import Call, Handler, storage
from corral.server.strategy.object_meta import Stale

MAX_RESTARTS = 10
"""Restarts of a request on Stale before its client gets the conflict."""


class Verbs:
    """Dispatches calls.

    ``subresources`` handles calls to subresources; ``answers`` has a handler for each kind that is
    never stored, by the resource name that it would be stored under.
    """

    def __init__(
        self,
        rest: Rest,
        watches: Watches,
        *,
        subresources: Handler,
        answers: Mapping[str, Handler],
    ) -> None:
        self._reviewers = rest.reviewers
        self._subresources = subresources
        self._answers = answers
        self._verbs: Mapping[str, Handler] = {
            "get": rest.get,
            "list": lambda call: lists.list_objects(rest, call),
            "watch": watches.answer,
            "create": rest.create,
            "update": rest.update,
            "patch": rest.patch,
            "delete": lambda call: delete(rest, call),
            "deletecollection": lambda call: delete_collection(rest, call),
        }

    async def answer(self, call: Call) -> Response:
        """Handle a call; restart it if an object changed while a webhook was awaited.

        Raises ApiError.
        """
        warnings = len(call.warnings)
        for _ in range(MAX_RESTARTS):
            try:
                return await self._answer(call)
            except Stale:
                del call.warnings[warnings:]
                call.managed_fields = None
        return await self._answer(call)

    async def _answer(self, call: Call) -> Response:
        _check_verb(call)
        if len(call.request.body) > body.LARGE_BYTES:
            await body.decode_in_thread(call)
        if call.subresource:
            return await self._subresources(call)
        if (answer := self._answers.get(storage(call.kind))) is not None:
            return await answer(await self._reviewers.admit_request(call))
        answer = self._verbs[call.verb]
        if call.name and call.verb == "create":
            raise MethodNotAllowed(f'create is not supported on one "{call.kind.plural}" by name')
        if not call.name and call.verb in ("update", "patch"):
            raise BadRequest("name must be provided")
        return await answer(call)


def _check_verb(call: Call) -> None:
    """Check that the kind has the verb.  Raises MethodNotAllowed."""
    if not call.verb or (call.kind.native and not route.exists(call.request.method, call)):
        raise MethodNotAllowed(route.METHOD_NOT_ALLOWED)
    if call.verb not in call.kind.verbs or (call.kind.create_only and call.name):
        raise MethodNotAllowed(
            route.METHOD_NOT_ALLOWED
            if call.kind.is_kept
            else f'{call.verb} is not supported on resources of kind "{call.kind.plural}": '
            "they are not stored"
        )
    if call.kind.closing and call.verb == "create":
        raise MethodNotAllowed("create not allowed while custom resource definition is terminating")
