"""``authorizer``: what an expression asks about somebody's rights (Kubernetes' authz library).

What is asked about is a map with one key that names the type.  Who can answer is told for one run
(``Authorizer``), in the context of which the functions look for it.
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
"""All that may be selected from it: a check of what the request is about."""
LONGEST_REASON: Final = 4096
"""Letters of what an expression is told of why."""
_AUTHORIZER = "kubernetes.authorization.Authorizer"
_GROUP = "kubernetes.authorization.GroupCheck"
_PATH = "kubernetes.authorization.PathCheck"
_RESOURCE = "kubernetes.authorization.ResourceCheck"
_DECISION = "kubernetes.authorization.Decision"


class Wish(NamedTuple):
    """What somebody may want: the one whose request it is, or the account that ``account`` names.

    account: namespace and name of a service account.
    path: of what is no resource.
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
    """The value of ``authorizer``: who decides, and about what the request is.

    why: by what something is allowed or not, which may take far longer to find.
    """

    allows: Callable[[Wish], bool]
    why: Callable[[Wish], str]
    request: Wish

    def value(self) -> dict[str, Any]:
        """What expressions see of it."""
        asked = {
            field: getattr(self.request, field)
            for field in ("group", "resource", "subresource", "namespace", "name")
        }
        return {_AUTHORIZER: {}, FIELD: {_RESOURCE: asked}}

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let it answer what is asked meanwhile, each question once."""
        once = Authorizer(cache(self.allows), cache(self.why), self.request)
        token = _answering.set(once)
        try:
            yield
        finally:
            _answering.reset(token)


_answering: ContextVar[Authorizer] = ContextVar("answering")


def _path(value: Mapping[str, Any], path: str) -> dict[str, Any]:
    who = content(value, _AUTHORIZER, dict)
    if not path.strip():
        raise ValueError("path must not be empty")
    return {_PATH: {**who, "path": path}}


def _group(value: Mapping[str, Any], group: str) -> dict[str, Any]:
    return {_GROUP: {**content(value, _AUTHORIZER, dict), "group": group}}


def _account(value: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
    content(value, _AUTHORIZER, dict)
    if faults := subdomain_faults(name):
        raise ValueError(f'Invalid service account name "{name}": {", ".join(faults)}')
    if faults := label_faults(namespace):
        told = f'Invalid service account namespace "{namespace}": {", ".join(faults)}'
        raise ValueError(told)
    return {_AUTHORIZER: {"account": [namespace, name]}}


def _resource(value: Mapping[str, Any], resource: str) -> dict[str, Any]:
    asked = content(value, _GROUP, dict)
    if not resource.strip():
        raise ValueError("resource must not be empty")
    return {_RESOURCE: {**asked, "resource": resource}}


def _narrows(field: str) -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    return lambda value, told: {_RESOURCE: {**content(value, _RESOURCE, dict), field: told}}


def _selects(value: Mapping[str, Any], _selector: str) -> dict[str, Any]:
    """Nobody is given rights by selectors here, so they change nothing."""
    return {_RESOURCE: content(value, _RESOURCE, dict)}


def _check(value: Mapping[str, Any], verb: str) -> dict[str, Any]:
    asked = {**content(value, _PATH if _PATH in value else _RESOURCE, dict), "verb": verb}
    return {_DECISION: {"allowed": _answers().allows(_wish(asked)), "asked": asked}}


def _answers() -> Authorizer:
    try:
        return _answering.get()
    except LookupError:
        raise ValueError("there is nobody to decide") from None


def _wish(asked: Mapping[str, Any]) -> Wish:
    account = asked.get("account")
    try:
        wish = Wish(**{**asked, "account": tuple(account) if account else None})
        hash(wish)  # an expression that wrote the map itself may have put anything in it
    except TypeError:
        raise ValueError("no such overload") from None
    return wish


def _decision(value: Mapping[str, Any]) -> dict[str, Any]:
    return content(value, _DECISION, dict)


def _reason(value: Mapping[str, Any]) -> str:
    return _answers().why(_wish(content(_decision(value), "asked", dict)))[:LONGEST_REASON]


RIGHTS: Final = (
    Function("path", ("map", "string"), "map", _path),
    Function("group", ("map", "string"), "map", _group),
    Function("serviceAccount", ("map", "string", "string"), "map", _account),
    Function("resource", ("map", "string"), "map", _resource),
    *(
        Function(field, ("map", "string"), "map", _narrows(field))
        for field in ("subresource", "namespace", "name")
    ),
    Function("fieldSelector", ("map", "string"), "map", _selects),
    Function("labelSelector", ("map", "string"), "map", _selects),
    Function("check", ("map", "string"), "map", _check),
    Function("allowed", ("map",), "bool", lambda value: content(_decision(value), "allowed", bool)),
    Function("reason", ("map",), "string", _reason),
    Function("errored", ("map",), "bool", lambda value: "error" in _decision(value)),
    Function("error", ("map",), "string", lambda value: _decision(value).get("error", "")),
)
