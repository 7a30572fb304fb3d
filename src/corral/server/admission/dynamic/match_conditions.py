"""Match conditions in CEL, and the variables of all admission expressions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from corral.api.cel import CelError, Program, compile_expression
from corral.api.cel.authorizer import AccessCheck, Authorizer as CelAuthorizer
from corral.api.kind import Version
from corral.api.object import Document
from corral.api.request import User
from corral.server.admission.dynamic.admission_review import request_of
from corral.server.admission.dynamic.attributes import AdmissionAttributes
from corral.server.authn.authenticator import AUTHENTICATED
from corral.server.authn.service_accounts import user_groups, user_name
from corral.server.authz.attributes import Attributes
from corral.server.authz.authorizer import Authorizer

T = TypeVar("T")


class ConditionError(Exception):
    """A match condition whose evaluation failed."""


def cel_bindings(
    attr: AdmissionAttributes, version: Version, authorizer: Authorizer
) -> dict[str, Any]:
    """Return the variables of every expression about an operation."""
    return {
        "object": attr.versioned(attr.document, version),
        "oldObject": attr.versioned(attr.old, version),
        "request": request_of(attr, version),
        "authorizer": authorizer_for(attr, authorizer),
    }


@dataclass(frozen=True, slots=True)
class MatchConditions:
    """Expressions that all must be true."""

    programs: tuple[Program | CelError, ...] = ()

    @classmethod
    def of(
        cls, documents: Sequence[Document] | None, declarations: Mapping[str, str]
    ) -> "MatchConditions":
        """Compile MatchCondition documents."""
        return cls(
            tuple(compile_or_error(each["expression"], declarations) for each in documents or ())
        )

    def match(self, variables: Mapping[str, Any]) -> bool:
        """Return whether all are true; a single false one decides, even if others fail.

        Raises ConditionError if one fails and none is false.
        """
        faults: list[str] = []
        for program in self.programs:
            try:
                if not evaluate(program, variables):
                    return False
            except CelError as error:
                faults.append(str(error))
        if faults:
            raise ConditionError(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
        return True


def compile_or_error(expression: str, declarations: Mapping[str, str]) -> Program | CelError:
    """Compile a stored expression; return the error if it is no longer valid."""
    try:
        return compile_expression(expression, declarations)
    except CelError as error:
        return error


def evaluate(program: Program | CelError, variables: Mapping[str, Any]) -> Any:
    """Evaluate an expression.  Raises CelError, which quotes it."""
    if isinstance(program, CelError):
        raise program
    try:
        return program.run(variables)
    except CelError as error:
        raise CelError(f"expression '{program.text}' resulted in error: {error}") from None


def authorizer_for(attr: AdmissionAttributes, authorizer: Authorizer) -> CelAuthorizer:
    """Return the ``authorizer`` variable: checks for the requesting user and service accounts."""
    call = attr.call

    def bound(check_rights: Callable[..., T]) -> Callable[[AccessCheck], T]:
        def call_authorizer(check: AccessCheck) -> T:
            user = call.user if check.account is None else _account(*check.account)
            fields_of_check = {
                field: getattr(check, field)
                for field in Attributes._fields
                if field not in ("user", "labels")
            }
            is_component = call.request.is_component(user)
            return check_rights(Attributes(user, **fields_of_check), is_component=is_component)

        return call_authorizer

    kind = call.kind
    request = AccessCheck("", kind.group, kind.plural, call.subresource, call.namespace, attr.name)
    return CelAuthorizer(bound(authorizer.allows), bound(authorizer.reason), request)


def _account(namespace: str, name: str) -> User:
    groups = (*user_groups(namespace), AUTHENTICATED)
    return User(name=user_name(namespace, name), groups=groups)
