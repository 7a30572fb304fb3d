"""Responses for paths without a resource."""

from corral.api.errors import Details, MethodNotAllowed, NotFound
from corral.api.kind import GroupVersion
from corral.api.kinds.table import KindTable
from corral.api.request import Response
from corral.server.request import call, route
from corral.server.request.route import Route
from corral.server.response.plain_text import not_found


def answer(kinds: KindTable, parsed_route: Route) -> Response:
    """Respond as kube-apiserver: with a Status in Kubernetes' own groups, else with plain text.

    A missing subresource of a custom resource also gets a Status, as if the object were missing.
    Writes across all namespaces are MethodNotAllowed.  Raises NotFound and MethodNotAllowed.
    """
    kind = kinds.find(parsed_route.group, parsed_route.version, parsed_route.plural)
    if kind is not None and not kind.native and parsed_route.subresource:
        raise call.not_found(kind, parsed_route.name)
    if not any(
        kind.native for kind in kinds.served(GroupVersion(parsed_route.group, parsed_route.version))
    ):
        return not_found()
    if (
        kind is not None
        and kind.namespaced
        and not parsed_route.namespace
        and not parsed_route.name
    ):
        raise MethodNotAllowed(route.METHOD_NOT_ALLOWED)
    raise NotFound("the server could not find the requested resource", details=Details())
