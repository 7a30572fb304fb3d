"""Attributes of a request for authorization (apiserver's authorizer.Attributes)."""

from typing import Final, NamedTuple

from corral.api.errors import Details, Forbidden
from corral.api.request import User
from corral.server.request import query
from corral.server.request.route import Route

_SUBRESOURCE_GROUP: Final = "subresources.kubevirt.io"
_NAME_SELECTABLE: Final = frozenset({"list", "watch"})


class Attributes(NamedTuple):
    """A user, a verb, and a resource or, if ``path`` is set, a non-resource URL."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    labels: str = ""
    """The label selector of a list or a watch."""

    @property
    def target(self) -> str:
        """The resource as rules name it: with its subresource."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def of_route(user: User, verb: str, parsed_route: Route, raw_query: str) -> Attributes:
    """Return the attributes of a request to a resource; ``raw_query`` is its query.

    A Namespace counts as within itself, so that a Role there applies to it.  Of a subresource the
    first segment counts, because a port behind ``portforward`` has no right of its own; KubeVirt's
    are named with all segments (``evacuate/cancel``).  A list or watch with the field selector
    ``metadata.name`` is allowed by rules for that name.
    """
    namespace, name = parsed_route.namespace, parsed_route.name
    if parsed_route.plural == "namespaces" and not parsed_route.group and name:
        namespace = name
    if not name and verb in _NAME_SELECTABLE and "fieldSelector" in raw_query:
        name = _selected_name(query.parse(raw_query).get("fieldSelector", ""))
    labels = ""
    if verb in _NAME_SELECTABLE and "labelSelector" in raw_query:
        labels = query.parse(raw_query).get("labelSelector", "")
    subresource = parsed_route.subresource
    if parsed_route.group != _SUBRESOURCE_GROUP or subresource.startswith("portforward/"):
        subresource = subresource.partition("/")[0]
    group, plural = parsed_route.group, parsed_route.plural
    return Attributes(user, verb, group, plural, subresource, namespace, name, labels=labels)


def _selected_name(selector: str) -> str:
    for term in selector.split(","):
        field, _, value = term.partition("=")
        if field.strip() == "metadata.name":
            return value.removeprefix("=").strip()
    return ""


def forbidden(attributes: Attributes, why: str = "") -> Forbidden:
    """Return the error in Kubernetes' words; ``why`` names missing roles, if any."""
    subject = f'User "{attributes.user.name}" cannot {attributes.verb}'
    suffix = f": {why}" if why else ""
    if attributes.path:
        return Forbidden(
            f'forbidden: {subject} path "{attributes.path}"{suffix}', details=Details()
        )
    qualified = (
        f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    )
    object_name = f' "{attributes.name}"' if attributes.name else ""
    scope = (
        f'in the namespace "{attributes.namespace}"'
        if attributes.namespace
        else "at the cluster scope"
    )
    return Forbidden(
        f'{qualified}{object_name} is forbidden: {subject} resource "{attributes.target}" '
        f'in API group "{attributes.group}" {scope}{suffix}',
        details=Details(name=attributes.name, group=attributes.group, kind=attributes.resource),
    )
