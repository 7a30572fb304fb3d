"""What somebody wants to do, as authorization sees it (apiserver's authorizer.Attributes)."""

from typing import Final, NamedTuple

from corral.api.errors import Details, Forbidden
from corral.api.request import User
from corral.server.request import query
from corral.server.request.route import Route

_MACHINES: Final = "subresources.kubevirt.io"
_NARROWED: Final = frozenset({"list", "watch"})


class Attributes(NamedTuple):
    """Who wants which verb, on some resource or, where ``path`` is told, on an address."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def target(self) -> str:
        """The resource as rules name it: with its subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_route(user: User, verb: str, named: Route, asked: str) -> Attributes:
    """What a request to a resource wants; ``asked`` is its query.

    A namespace is within itself, so that a role there may tell of it.  Of a subresource the first
    step counts, as a port behind ``portforward`` is nothing to be allowed by itself; others of
    machines are named with all their steps (``evacuate/cancel``).  Who asks for objects of one name
    only is allowed by rules for that name.
    """
    namespace, name = named.namespace, named.name
    if named.plural == "namespaces" and not named.group and name:
        namespace = name
    if not name and verb in _NARROWED and "fieldSelector" in asked:
        name = _selected_name(query.parse(asked).get("fieldSelector", ""))
    below = named.subresource
    if named.group != _MACHINES or below.startswith("portforward/"):
        below = below.partition("/")[0]
    return Attributes(user, verb, named.group, named.plural, below, namespace, name)


def _selected_name(selector: str) -> str:
    for term in selector.split(","):
        field, _, value = term.partition("=")
        if field.strip() == "metadata.name":
            return value.removeprefix("=").strip()
    return ""


def forbidden(wish: Attributes, why: str = "") -> Forbidden:
    """The refusal in Kubernetes' words; ``why`` tells what could not be looked up, if anything."""
    who = f'User "{wish.user.name}" cannot {wish.verb}'
    because = f": {why}" if why else ""
    if wish.path:
        return Forbidden(f'forbidden: {who} path "{wish.path}"{because}', details=Details())
    qualified = f"{wish.resource}.{wish.group}" if wish.group else wish.resource
    named = f' "{wish.name}"' if wish.name else ""
    scope = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
    return Forbidden(
        f'{qualified}{named} is forbidden: {who} resource "{wish.target}" in API group '
        f'"{wish.group}" {scope}{because}',
        details=Details(name=wish.name, group=wish.group, kind=wish.resource),
    )
