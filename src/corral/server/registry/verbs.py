"""The verbs of the API: what a call asks for, and what answers it."""

from collections.abc import Mapping

from corral.api.errors import BadRequest, MethodNotAllowed
from corral.api.request import Response
from corral.server.registry import lists
from corral.server.registry.delete import delete, delete_collection
from corral.server.registry.rest import Rest
from corral.server.registry.watch import Watches
from corral.server.request import body, route
from corral.server.request.call import Answer, Call, storage
from corral.server.strategy.object_meta import Stale

MOST_RESTARTS = 10
"""So often a request starts anew before its sender has to take care of it."""


class Verbs:
    """Answers calls.

    ``subresources`` answers what is asked below an object; ``answers`` has what answers each kind
    whose objects are never kept, by the name that it would be stored under.
    """

    def __init__(
        self,
        rest: Rest,
        watches: Watches,
        *,
        subresources: Answer,
        answers: Mapping[str, Answer],
    ) -> None:
        self._reviewers = rest.reviewers
        self._subresources = subresources
        self._answers = answers
        self._verbs: Mapping[str, Answer] = {
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
        """Answer a call; anew where an object changed while somebody outside was asked about it.

        Raises ApiError.
        """
        warnings = len(call.warnings)
        for _ in range(MOST_RESTARTS):
            try:
                return await self._answer(call)
            except Stale:
                del call.warnings[warnings:]
                call.account = None
        return await self._answer(call)

    async def _answer(self, call: Call) -> Response:
        _require_verb(call)
        if len(call.request.body) > body.LARGE_BYTES:
            await body.prepare(call)
        if call.subresource:
            return await self._subresources(call)
        if (answer := self._answers.get(storage(call.kind))) is not None:
            return await answer(await self._reviewers.asked(call))
        answer = self._verbs[call.verb]
        if call.name and call.verb == "create":
            raise MethodNotAllowed(f'create is not supported on one "{call.kind.plural}" by name')
        if not call.name and call.verb in ("update", "patch"):
            raise BadRequest("name must be provided")
        return await answer(call)


def _require_verb(call: Call) -> None:
    """Raises MethodNotAllowed where the kind, as it is now, does not have the verb."""
    if not call.verb or (call.kind.native and not route.exists(call.request.method, call)):
        raise MethodNotAllowed(route.MISSING)
    if call.verb not in call.kind.verbs or (call.kind.only_created and call.name):
        raise MethodNotAllowed(
            route.MISSING
            if call.kind.is_kept
            else f'{call.verb} is not supported on resources of kind "{call.kind.plural}": '
            "they are answered and not kept"
        )
    if call.kind.closing and call.verb == "create":
        raise MethodNotAllowed("create not allowed while custom resource definition is terminating")
