"""CEL expressions of policies, webhooks and CustomResourceDefinitions: compiling and evaluating.

Expressions and their inputs may be hostile: an evaluation ends after a bounded number of steps, and
has no side effects.
"""

from collections.abc import Mapping

from corral.api.cel.program import CelError, Program, environment

__all__ = ["CelError", "Program", "compile_expression"]


def compile_expression(text: str, variables: Mapping[str, str]) -> Program:
    """Compile an expression.  Raises CelError.

    variables: names that it may use, with their types: ``dyn``, ``bool``, ``int``, ``double``,
        ``string``, ``timestamp``, ``list`` and ``map`` (of strings to any).
    """
    return environment(tuple(variables.items())).compile(text)
