"""The grammar of Kubernetes' paths.

    /api/v1/...                    the core group
    /apis/GROUP/VERSION/...        any other
        [watch/]                   the old spelling of ?watch=true
        [namespaces/NS/]PLURAL[/NAME[/SUBRESOURCE...]]

``/api/v1/namespaces/NS`` is an object itself; ``status`` and ``finalize`` below it belong to it.
"""

from typing import NamedTuple, Protocol

MISSING = "the server does not allow this method on the requested resource"
"""What is said of a method for which a path has no route."""
_OF_NAMESPACES = ("status", "finalize")


class Route(NamedTuple):
    """What a path names.  A collection has no ``name``; ``subresource`` may hold slashes."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False


def parse(path: str) -> Route | None:
    """The resource that a path names; None where it is not of this grammar.

    That holds for what is not about objects at all: discovery, health, documents.
    """
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
    plural, name, *below = [*rest, ""] if len(rest) == 1 else rest
    return Route(group, version, plural, namespace, name, "/".join(below), watch)


def _scope(group: str, rest: list[str]) -> tuple[str, list[str]]:
    """The namespace, and what is named within it."""
    of_itself = not group and len(rest) == 3 and rest[2] in _OF_NAMESPACES
    if rest[0] != "namespaces" or len(rest) < 3 or of_itself:
        return "", rest
    return rest[1], rest[2:]


def is_home(route: Route, verb: str, *, namespaced: bool) -> bool:
    """Whether a path leads to where objects of a kind are: in a namespace, or in none.

    Those of all namespaces are listed and watched together.
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
    """What a request is about: a collection has no name."""

    name: str
    subresource: str


def exists(method: str, target: Target) -> bool:
    """Whether Kubernetes' own kinds have a route for a method there.

    Each method has one of its own, and HEAD none.  Kinds from outside take what means something.
    """
    if target.subresource:
        return method != "HEAD"
    ways = ("GET", "PUT", "PATCH", "DELETE") if target.name else ("GET", "POST", "DELETE")
    return method in ways


def verb(method: str, route: Route, *, watch: bool) -> str:
    """What a request does, in authorization's words; "" for a method that means nothing here.

    A watch of a single object counts as a watch, as the real server counts it.
    """
    plain = VERBS.get(method, "")
    if plain == "get" and (watch or not route.name):
        return "watch" if watch else "list"
    if plain == "delete" and not route.name:
        return "deletecollection"
    return plain
