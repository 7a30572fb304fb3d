"""A session with an API server: cluster, user, namespace, and readable errors."""

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
from corral.client.https import Https
from corral.client.kubeconfig import Kubeconfig, KubeconfigError
from corral.client.stream import Stream, StreamLost
from corral.config import Layout

_KINDS: Final = {
    "virtualmachineinstancereplicasets": "vmirs",
    "virtualmachines": "vm",
    "virtualmachine": "vm",
    "nodes": "nodes",
    "virtualmachineclaims": "vmclaim",
    "virtualmachinewarmpools": "vmwp",
    "virtualmachinecheckpoints": "vmcheckpoint",
}
"""kubectl's short name of a kind that is not found, by resource; vmi for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A cluster, a user and a namespace.

    path, context: their source, for programs that are started.
    """

    config: Kubeconfig
    namespace: str
    path: Path
    context: str = ""

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Open a client of the API server; the context closes its connections."""
        async with Https(self.config) as transport:
            yield Client(transport)

    def stream(self, path: str) -> AbstractAsyncContextManager[Stream]:
        """Open a WebSocket stream; raises ApiError if the server refuses it."""
        url = f"wss{self.config.server.removeprefix('https')}{path}"
        return Stream.open(url, headers=self.config.headers, tls=self.config.tls())

    @contextmanager
    def api_errors(self, prefix: str = "") -> Iterator[None]:
        """Turn errors of the API, and of connections to it, into a Problem with a hint.

        prefix: of the message, as virtctl words it.
        """
        try:
            yield
        except (ApiError, StreamLost, ExceptionGroup) as error:
            cause = cause_of(error)
            if isinstance(cause, Problem):
                raise cause from error
            if not isinstance(cause, ApiError | StreamLost):
                raise
            message = "the API serves no such kind" if _is_unserved(cause) else str(cause)
            message = f"{prefix}: {message}" if prefix else message
            raise Problem(message, self._hint(cause)) from error

    def _hint(self, cause: Exception) -> str:
        if isinstance(cause, Unavailable):
            layout = hints.of_kubeconfig(self.path)
            if layout is None:
                return "corral status shows its state; corral up --detach starts it."
            status = hints.command_line("status", layout)
            return f"{status} shows its state; {hints.up(layout)} starts it."
        if isinstance(cause, Unauthorized):
            return (
                f"The certificate or token in {self.path} is not valid: it has expired, was "
                "revoked, or belongs to another cluster. Request a new one; corral kubeconfig "
                "--user makes it."
            )
        if _is_unserved(cause):
            return "Is the server as new as this command? corral version shows both."
        if isinstance(cause, NotFound):
            kind = _KINDS.get(cause.details.kind if cause.details else "", "vmi")
            return f"kubectl get {kind} -n {self.namespace} lists what is there."
        return ""


def _is_unserved(cause: Exception) -> bool:
    """Report whether the path is unknown to the API, rather than an object missing."""
    return isinstance(cause, NotFound) and str(cause).strip() == "404 page not found"


def session_of(
    layout: Layout, chosen: Path | None = None, context: str = "", namespace: str = ""
) -> Session:
    """Open the chosen kubeconfig, else $KUBECONFIG's first file, else the data directory's."""
    variable = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = chosen or (Path(variable) if variable else layout.kubeconfig)
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
