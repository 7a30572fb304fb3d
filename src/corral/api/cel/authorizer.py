"""``authorizer``: access checks in expressions (Kubernetes' authz library).

A check is a map with one key that names its type.  The authorizer of an evaluation is a context
variable, because the library calls functions without one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from corral.api.cel.function import Function, content
from corral.api.names import label_faults, subdomain_faults

VARIABLE: Final = "authorizer"
FIELD: Final = "requestResource"
"""The only field of the variable: a check of the resource of the request."""
LONGEST_REASON: Final = 4096
"""Characters of a reason that an expression sees."""
_AUTHORIZER = "kubernetes.authorization.Authorizer"
_GROUP = "kubernetes.authorization.GroupCheck"
_PATH = "kubernetes.authorization.PathCheck"
_RESOURCE = "kubernetes.authorization.ResourceCheck"
_DECISION = "kubernetes.authorization.Decision"


class AccessCheck(NamedTuple):
    """The attributes of an access check, as authorizer.Attributes in Kubernetes.

    path: of a request for something that is no resource.
    account: namespace and name of a service account; the user of the request if None.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The value of ``authorizer``: decides access checks; ``request`` is that of the request.

    reason: explains a decision; may take far longer than ``allows``.
    """

    allows: Callable[[AccessCheck], bool]
    reason: Callable[[AccessCheck], str]
    request: AccessCheck

    def value(self) -> dict[str, Any]:
        """Return the value that expressions see."""
        fields = {
            field: getattr(self.request, field)
            for field in ("group", "resource", "subresource", "namespace", "name")
        }
        return {_AUTHORIZER: {}, FIELD: {_RESOURCE: fields}}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make this the authorizer of expressions, with a cache of its decisions."""
        cached = Authorizer(cache(self.allows), cache(self.reason), self.request)
        token = _active.set(cached)
        try:
            yield
        finally:
            _active.reset(token)


_active: ContextVar[Authorizer] = ContextVar("active")


def _path(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    authorizer = content(value, _AUTHORIZER, dict)
    if not path.strip():
        raise ValueError("path must not be empty")
    return {_PATH: {**authorizer, "path": path}}


def _group(value: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {_GROUP: {**content(value, _AUTHORIZER, dict), "group": group}}


def _account(value: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
    content(value, _AUTHORIZER, dict)
    if faults := subdomain_faults(name):
        raise ValueError(f'Invalid service account name "{name}": {", ".join(faults)}')
    if faults := label_faults(namespace):
        message = f'Invalid service account namespace "{namespace}": {", ".join(faults)}'
        raise ValueError(message)
    return {_AUTHORIZER: {"account": [namespace, name]}}


def _resource(value: Mapping[str, Any], resource: str) -> dict[str, Any]:
    fields = content(value, _GROUP, dict)
    if not resource.strip():
        raise ValueError("resource must not be empty")
    return {_RESOURCE: {**fields, "resource": resource}}


def _with_field(field: str) -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    return lambda check, value: {_RESOURCE: {**content(check, _RESOURCE, dict), field: value}}


def _with_selector(value: Mapping[str, Any], _selector: str) -> dict[str, Any]:
    """Ignore the selector: RBAC does not grant rights by selectors."""
    return {_RESOURCE: content(value, _RESOURCE, dict)}


def _check(value: Mapping[str, Any], verb: str) -> dict[str, Any]:
    fields = {**content(value, _PATH if _PATH in value else _RESOURCE, dict), "verb": verb}
    return {_DECISION: {"allowed": _current().allows(_access_check(fields)), "fields": fields}}


def _current() -> Authorizer:
    try:
        return _active.get()
    except LookupError:
        raise ValueError("there is no authorizer for this expression") from None


def _access_check(fields: Mapping[str, Any]) -> AccessCheck:
    account = fields.get("account")
    try:
        checked = AccessCheck(**{**fields, "account": tuple(account) if account else None})
        hash(checked)  # an expression may have written this map itself, with any values
    except TypeError:
        raise ValueError("no such overload") from None
    return checked


def _decision(value: Mapping[str, Any]) -> dict[str, Any]:
    return content(value, _DECISION, dict)


def _reason(value: Mapping[str, Any]) -> str:
    return _current().reason(_access_check(content(_decision(value), "fields", dict)))[
        :LONGEST_REASON
    ]


ACCESS_CHECKS: Final = (
    Function("path", ("map", "string"), "map", _path),
    Function("group", ("map", "string"), "map", _group),
    Function("serviceAccount", ("map", "string", "string"), "map", _account),
    Function("resource", ("map", "string"), "map", _resource),
    *(
        Function(field, ("map", "string"), "map", _with_field(field))
        for field in ("subresource", "namespace", "name")
    ),
    Function("fieldSelector", ("map", "string"), "map", _with_selector),
    Function("labelSelector", ("map", "string"), "map", _with_selector),
    Function("check", ("map", "string"), "map", _check),
    Function("allowed", ("map",), "bool", lambda value: content(_decision(value), "allowed", bool)),
    Function("reason", ("map",), "string", _reason),
    Function("errored", ("map",), "bool", lambda value: "error" in _decision(value)),
    Function("error", ("map",), "string", lambda value: _decision(value).get("error", "")),
)
