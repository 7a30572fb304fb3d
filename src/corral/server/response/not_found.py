"""What is answered where a path leads to no object."""

from corral.api.errors import Details, MethodNotAllowed, NotFound
from corral.api.kind import GroupVersion
from corral.api.kinds.table import KindTable
from corral.api.request import Response
from corral.server.request import call, route
from corral.server.request.route import Route
from corral.server.response.plain_text import not_found


def answer(kinds: KindTable, named: Route) -> Response:
    """As the real server: Kubernetes' own groups say it in a Status, and others do not.

    What is not served below a custom resource is told in a Status, too: as if that were not there.

    Objects of all namespaces can only be listed and watched: nobody means all of them who makes or
    deletes some.  Raises NotFound and MethodNotAllowed.
    """
    kind = kinds.find(named.group, named.version, named.plural)
    if kind is not None and not kind.native and named.subresource:
        raise call.not_found(kind, named.name)
    if not any(kind.native for kind in kinds.served(GroupVersion(named.group, named.version))):
        return not_found()
    if kind is not None and kind.namespaced and not named.namespace and not named.name:
        raise MethodNotAllowed(route.MISSING)
    raise NotFound("the server could not find the requested resource", details=Details())
