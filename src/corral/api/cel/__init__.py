"""CEL, the language of rules that users bring: in policies, webhooks and CustomResourceDefinitions.

What such a rule says, and what it is given, may be hostile: a rule ends after a bounded number of
steps, and nothing that it asks for is done outside of it.
"""

from collections.abc import Mapping

from corral.api.cel.program import CelError, Program, environment

__all__ = ["CelError", "Program", "compile_expression"]


def compile_expression(text: str, variables: Mapping[str, str]) -> Program:
    """The program that an expression is.

    ``variables`` are the types of the names that it may use: ``dyn`` for any, and ``bool``,
    ``int``, ``double``, ``string``, ``timestamp``, ``list`` and ``map`` (of strings to any).
    Raises CelError.
    """
    return environment(tuple(variables.items())).compile(text)
