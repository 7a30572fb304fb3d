"""Expressions that say whether somebody wants to be asked, and what expressions are given."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from corral.api.cel import CelError, Program, compile_expression
from corral.api.cel.authorizer import AccessCheck, Authorizer as CelAuthorizer
from corral.api.kind import Version
from corral.api.object import Document
from corral.api.request import User
from corral.server.admission.dynamic.admission_review import request_of
from corral.server.admission.dynamic.attributes import Act
from corral.server.authn.authenticator import AUTHENTICATED
from corral.server.authn.service_accounts import user_groups, user_name
from corral.server.authz.attributes import Attributes
from corral.server.authz.authorizer import Authorizer

T = TypeVar("T")


class ConditionError(Exception):
    """A condition has no value, so nobody knows whether it holds."""


def bindings(act: Act, version: Version, authorizer: Authorizer) -> dict[str, Any]:
    """What every expression about an act may look at."""
    return {
        "object": act.seen(act.document, version),
        "oldObject": act.seen(act.old, version),
        "request": request_of(act, version),
        "authorizer": authorizer_for(act, authorizer),
    }


@dataclass(frozen=True, slots=True)
class Conditions:
    """Expressions that all have to be true."""

    programs: tuple[Program | CelError, ...] = ()

    @classmethod
    def of(cls, documents: Sequence[Document] | None, variables: Mapping[str, str]) -> "Conditions":
        """The conditions that documents of MatchCondition are."""
        return cls(tuple(compiled(each["expression"], variables) for each in documents or ()))

    def hold(self, given: Mapping[str, Any]) -> bool:
        """Whether all are true; one that is false decides, whatever else is wrong.

        Raises ConditionError where one has no value, and none is false.
        """
        faults: list[str] = []
        for program in self.programs:
            try:
                if not run(program, given):
                    return False
            except CelError as error:
                faults.append(str(error))
        if faults:
            raise ConditionError(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
        return True


def compiled(expression: str, variables: Mapping[str, str]) -> Program | CelError:
    """The program of an expression that was valid once; why it is not any more."""
    try:
        return compile_expression(expression, variables)
    except CelError as error:
        return error


def run(program: Program | CelError, given: Mapping[str, Any]) -> Any:
    """The value of an expression.  Raises CelError, which names it."""
    if isinstance(program, CelError):
        raise program
    try:
        return program.run(given)
    except CelError as error:
        raise CelError(f"expression '{program.text}' resulted in error: {error}") from None


def authorizer_for(act: Act, authorizer: Authorizer) -> CelAuthorizer:
    """The ``authorizer`` of expressions about an act: who asks, and service accounts."""
    call = act.call

    def asks(answer: Callable[..., T]) -> Callable[[AccessCheck], T]:
        def ask(check: AccessCheck) -> T:
            user = call.user if check.account is None else _account(*check.account)
            named = {
                field: getattr(check, field) for field in Attributes._fields if field != "user"
            }
            inside = user is call.request.user
            return answer(Attributes(user, **named), inside=inside)

        return ask

    kind = call.kind
    request = AccessCheck("", kind.group, kind.plural, call.subresource, call.namespace, act.name)
    return CelAuthorizer(asks(authorizer.allows), asks(authorizer.reason), request)


def _account(namespace: str, name: str) -> User:
    groups = (*user_groups(namespace), AUTHENTICATED)
    return User(name=user_name(namespace, name), groups=groups)
