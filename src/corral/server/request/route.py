"""The grammar of Kubernetes' paths.

    /api/v1/...                    the core group
    /apis/GROUP/VERSION/...        any other
        [watch/]                   the old spelling of ?watch=true
        [namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE...]]

``/api/v1/namespaces/NS`` is an object itself; ``status`` and ``finalize`` below it belong to it.
"""

from typing import NamedTuple, Protocol

METHOD_NOT_ALLOWED = "the server does not allow this method on the requested resource"
"""Message for a method for which a path has no route."""
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


class Route(NamedTuple):
    """A parsed path.  A collection has no ``name``; ``subresource`` may contain slashes."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False


def parse(path: str) -> Route | None:
    """Parse the path of a resource; None for non-resource paths: discovery, health, documents."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if "" in rest:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace, rest = _scope(group, rest)
    plural, name, *subresources = [*rest, ""] if len(rest) == 1 else rest
    return Route(group, version, plural, namespace, name, "/".join(subresources), watch)


def _scope(group: str, rest: list[str]) -> tuple[str, list[str]]:
    """Split off the namespace of a path."""
    of_itself = not group and len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES
    if rest[0] != "namespaces" or len(rest) < 3 or of_itself:
        return "", rest
    return rest[1], rest[2:]


def is_valid_scope(route: Route, verb: str, *, namespaced: bool) -> bool:
    """Return whether a path has the scope of a kind: namespaced or cluster-scoped.

    Namespaced kinds can be listed and watched across all namespaces.
    """
    if not namespaced or route.namespace:
        return namespaced == bool(route.namespace)
    return verb in ("list", "watch") and not route.name


VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}


class Target(Protocol):
    """The target of a request; a collection has no name."""

    name: str
    subresource: str


def exists(method: str, target: Target) -> bool:
    """Return whether Kubernetes' own kinds have a route for a method: HEAD has none.

    For custom resources each method with a verb is routed.
    """
    if target.subresource:
        return method != "HEAD"
    methods = ("GET", "PUT", "PATCH", "DELETE") if target.name else ("GET", "POST", "DELETE")
    return method in methods


def verb(method: str, route: Route, *, watch: bool) -> str:
    """Return the authorization verb of a request; "" for a method without one.

    A watch of a single object is a watch, as in kube-apiserver.
    """
    mapped_verb = VERBS.get(method, "")
    if mapped_verb == "get" and (watch or not route.name):
        return "watch" if watch else "list"
    if mapped_verb == "delete" and not route.name:
        return "deletecollection"
    return mapped_verb
