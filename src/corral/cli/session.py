"""Whom a command speaks to, in whose name, and how it tells what went wrong there."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.api.errors import ApiError, NotFound, Unauthorized, Unavailable
from corral.cli import hints
from corral.cli.errors import Problem, cause_of
from corral.client import kubeconfig
from corral.client.client import Client
from corral.client.kubeconfig import Kubeconfig, KubeconfigError
from corral.client.stream import Stream, StreamLost
from corral.client.transport import Https
from corral.config import Layout

_KINDS: Final = {
    "virtualmachineinstancereplicasets": "vmirs",
    "virtualmachines": "vm",
    "virtualmachine": "vm",
    "nodes": "nodes",
}
"""How kubectl is asked for the kinds that are not found; for all others it is vmi."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A cluster, as one user, in one namespace.

    path and context say where that was read, so that a program that is started can read it, too.
    """

    config: Kubeconfig
    namespace: str
    path: Path
    context: str = ""

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Ask the API server; the connection ends with the block."""
        async with Https(self.config) as transport:
            yield Client(transport)

    def stream(self, path: str) -> AbstractAsyncContextManager[Stream]:
        """Open a stream at a path of the API; raises the ApiError that is answered instead."""
        url = f"wss{self.config.server.removeprefix('https')}{path}"
        return Stream.open(url, headers=self.config.headers, tls=self.config.tls())

    @contextmanager
    def told(self, doing: str = "") -> Iterator[None]:
        """Turn what the API refuses, and what breaks on the way there, into a Problem.

        doing: what was tried, which stands before the refusal as in virtctl's messages.
        """
        try:
            yield
        except (ApiError, StreamLost, ExceptionGroup) as error:
            cause = cause_of(error)
            if isinstance(cause, Problem):
                raise cause from error
            if not isinstance(cause, ApiError | StreamLost):
                raise
            told = "the API serves no such kind" if _is_unserved(cause) else str(cause)
            raise Problem(f"{doing}: {told}" if doing else told, self._hint(cause)) from error

    def _hint(self, cause: Exception) -> str:
        if isinstance(cause, Unavailable):
            layout = hints.of_kubeconfig(self.path)
            if layout is None:
                return "corral status tells how it is; corral up --detach starts it."
            return f"{hints.other('status', layout)} tells how it is; {hints.up(layout)} starts it."
        if isinstance(cause, Unauthorized):
            return (
                f"The certificate or token in {self.path} is not good: it has ended, was revoked, "
                "or is another cluster's. Ask for a new one; corral kubeconfig --user makes it."
            )
        if _is_unserved(cause):
            return "Is the server as new as this command? corral version tells both."
        if isinstance(cause, NotFound):
            kind = _KINDS.get(cause.details.kind if cause.details else "", "vmi")
            return f"kubectl get {kind} -n {self.namespace} lists what is there."
        return ""


def _is_unserved(cause: Exception) -> bool:
    """Whether the API has no such path; what it has not found there is told otherwise."""
    return isinstance(cause, NotFound) and str(cause).strip() == "404 page not found"


def session_of(
    layout: Layout, chosen: Path | None = None, context: str = "", namespace: str = ""
) -> Session:
    """What was named, else $KUBECONFIG's first file, else the data directory's own."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = chosen or (Path(named) if named else layout.kubeconfig)
    if not path.exists():
        home = hints.of_kubeconfig(path) or layout
        raise Problem(
            f"there is no kubeconfig {path}",
            f"Start corral ({hints.up(home)}), or name another with --kubeconfig.",
        )
    try:
        config = kubeconfig.load(path, context)
    except KubeconfigError as error:
        raise Problem(str(error)) from error
    return Session(
        config=config, namespace=namespace or config.namespace, path=path.absolute(),
        context=context,
    )  # fmt: skip
