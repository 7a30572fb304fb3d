"""Expressions that say whether somebody wants to be asked, and what expressions are given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.cel import CelError, Program, compile_expression
from corral.api.kind import Version
from corral.api.object import Document
from corral.server.admission.dynamic import cel_authorizer
from corral.server.admission.dynamic.admission_review import request_of
from corral.server.admission.dynamic.attributes import Act
from corral.server.authz.authorizer import Authorizer


class ConditionError(Exception):
    """A condition has no value, so nobody knows whether it holds."""


def bindings(act: Act, version: Version, authorizer: Authorizer) -> dict[str, Any]:
    """What every expression about an act may look at."""
    return {
        "object": act.seen(act.document, version),
        "oldObject": act.seen(act.old, version),
        "request": request_of(act, version),
        "authorizer": cel_authorizer.asked(act, authorizer),
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
