"""SubjectAccessReviews and SelfSubjectRulesReviews (authorization.k8s.io)."""

from corral.api.encoding import encode
from corral.api.errors import BadRequest
from corral.api.kind import at
from corral.api.kinds.auth.authorization import (
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
from corral.api.object import Document
from corral.api.request import Response, User
from corral.server.authz.attributes import Attributes
from corral.server.authz.authorizer import Authorizer
from corral.server.request import accept, body, query
from corral.server.request.call import Call, Handler, json_response, storage
from corral.server.strategy import validation

_OF_RULES = ("verbs", "apiGroups", "resources", "resourceNames")
_OF_PATHS = ("verbs", "nonResourceURLs")


class Reviews:
    """Handlers of reviews, by an authorizer's decisions."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def answers(self) -> dict[str, Handler]:
        """Return the handlers, by the resource name of the kind."""
        return {
            storage(SELF_SUBJECT_ACCESS_REVIEW): self._of_self,
            storage(SUBJECT_ACCESS_REVIEW): self._of_other,
            storage(LOCAL_SUBJECT_ACCESS_REVIEW): self._of_other,
            storage(SELF_SUBJECT_RULES_REVIEW): self._rules,
        }

    async def _of_self(self, call: Call) -> Response:
        """Review access of the requesting user.  Raises BadRequest and Invalid."""
        document = _read_review(call)
        return self._respond(call, document, call.user)

    async def _of_other(self, call: Call) -> Response:
        """Review access of another user.  Raises BadRequest and Invalid."""
        document = _read_review(call)
        spec = document["spec"]
        extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
        user = User(
            name=spec.get("user") or "",
            groups=tuple(spec.get("groups") or ()),
            uid=spec.get("uid") or "",
            extra=extra,
        )
        return self._respond(call, document, user)

    def _respond(self, call: Call, document: Document, user: User) -> Response:
        is_component = call.request.is_component(user)
        allowed, reason = self._authorizer.verdict(
            _attributes_of(document["spec"], user), is_component=is_component
        )
        document["status"] = {"allowed": allowed, **({"reason": reason} if reason else {})}
        return json_response(encode(document), status=201)

    async def _rules(self, call: Call) -> Response:
        """List the rules of the requesting user in a namespace.  Raises BadRequest."""
        document = _read_review(call)
        namespace = at(document, "spec", "namespace") or ""
        if not namespace:
            raise BadRequest("no namespace on request")
        rules, reason = self._authorizer.rules(call.user, namespace)
        status: Document = {
            "resourceRules": [
                _selected_fields(rule.document, _OF_RULES)
                for rule in rules
                if rule.document.get("resources")
            ],
            "nonResourceRules": [
                _selected_fields(rule.document, _OF_PATHS)
                for rule in rules
                if rule.document.get("nonResourceURLs")
            ],
            "incomplete": bool(reason),
        }
        if reason:
            status["evaluationError"] = reason
        document["status"] = status
        return json_response(encode(document), status=201)


def _read_review(call: Call) -> Document:
    """Read and validate a review, like an object to be stored."""
    accept.require_not_table_only(call.request.headers.get("accept", ""))
    query.dry_run([call.query.get("dryRun", "")], "CreateOptions")
    document = validation.incoming(call, body.read(call))
    document.pop("status", None)
    validation.conform(call, document)
    if causes := call.kind.validate(document, None, call.user.name).causes:
        raise call.kind.invalid("", causes)
    document["metadata"].setdefault("creationTimestamp", None)
    return document


def _attributes_of(spec: Document, user: User) -> Attributes:
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return Attributes(user, path.get("verb") or "", path=path.get("path") or "/")
    resource_attributes = spec.get("resourceAttributes") or {}
    group, resource, subresource, namespace, name = (
        resource_attributes.get(field) or ""
        for field in ("group", "resource", "subresource", "namespace", "name")
    )
    verb = resource_attributes.get("verb") or ""
    return Attributes(user, verb, group, resource, subresource, namespace, name)


def _selected_fields(rule: Document, fields: tuple[str, ...]) -> Document:
    return {name: rule[name] for name in fields if rule.get(name)}
