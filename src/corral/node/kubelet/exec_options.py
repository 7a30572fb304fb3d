"""Options of a command, as an API server passes them to a node in a query.

kube-apiserver sends the kubelet's own names (``input=1&output=1&error=1&tty=1``, pkg/apis/core's
ExecStdinParam and its like), our server those of the client (core/v1 PodExecOptions).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from starlette.datastructures import QueryParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    """The command, the streams that the client opens, and whether it asks for a terminal."""

    command: Sequence[str]
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def of(cls, query: QueryParams) -> Self:
        """Return the options of a query."""

        def is_set(name: str, of_kubelet: str) -> bool:
            return query.get(name) == "true" or query.get(of_kubelet) == "1"

        return cls(
            command=query.getlist("command"),
            stdin=is_set("stdin", "input"),
            stdout=is_set("stdout", "output"),
            stderr=is_set("stderr", "error"),
            tty=is_set("tty", "tty"),
        )

    def streams(self) -> set[str]:
        """Return the names of the streams that the client opens besides that of errors."""
        names = {"stdin": self.stdin, "stdout": self.stdout, "stderr": self.stderr}
        return {name for name, is_open in names.items() if is_open}
