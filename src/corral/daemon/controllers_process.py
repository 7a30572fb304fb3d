"""Controllers alone: a process that acts on an API server elsewhere while it is the leader.

What ``run`` does for a manager, ``ControllersProcess.run`` does for a cluster that has an API
server already.  Caches are filled before an election is won, so that a new leader acts at once.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from corral.aio import Background
from corral.api.errors import ApiError
from corral.api.object import Key
from corral.client.client import Client
from corral.client.https import Https
from corral.client.kubeconfig import Kubeconfig
from corral.client.retries import Retrying
from corral.controllers import serving_certificate
from corral.daemon import process
from corral.daemon.errors import CannotStart
from corral.daemon.extension import Extension
from corral.daemon.health import health_app
from corral.metrics import Registry, Source, process as process_metrics
from corral.reconcile import metrics as controller_metrics
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller
from corral.reconcile.leader_election import LeaderElection, Timing
from corral.server.transport.listener import ServeError, listening

LEASE: Final = "corral-controllers"
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllersProcess:
    """One process of controllers.

    make: returns the controllers; sources: makes further metrics of the context; lease: of which
    only its holder acts, None for a process that is alone; bind: where health is served;
    install_namespace: where ``corral install`` has put the process, which then serves webhooks and
    the aggregated API as well; empty if it has not.
    """

    config: Kubeconfig
    make: Callable[[ControllerContext], Sequence[Controller[Any]]]
    sources: Mapping[str, Callable[[ControllerContext], Source]] = field(default_factory=dict)
    lease: Key | None
    timing: Timing = field(default_factory=Timing)
    bind: tuple[str, int]
    install_namespace: str = ""

    async def run(self, announce: Callable[[dict[str, str]], None]) -> None:
        """Run until SIGTERM or SIGINT, or until another process leads.

        ``announce`` is called when health is served.  Raises CannotStart, and LeadershipLostError.
        """
        process.prepare()
        terminated = process.termination()
        try:
            await self._run(terminated, announce)
        except ExceptionGroup as group:  # of the Background
            error = _first(group)
            if isinstance(error, ServeError | ApiError):
                raise CannotStart(str(error)) from group
            raise error from group

    async def _run(
        self, terminated: asyncio.Event, announce: Callable[[dict[str, str]], None]
    ) -> None:
        metrics = Registry(process=process_metrics)
        async with Https(self.config) as transport, Background() as tasks:
            context = ControllerContext(Client(Retrying(transport)))
            extension = await self._extension(Client(Retrying(transport)))
            running = [*self.make(context)]
            if extension is not None:
                running.append(serving_certificate.controller(context, extension.namespace))
            metrics.add("loops", controller_metrics.of(lambda: running))
            for name, make_source in self.sources.items():
                metrics.add(name, make_source(context))
            health = health_app(metrics, fault=lambda: _fault(context))
            served = (health, None) if extension is None else (extension.app(health), extension.tls)
            if extension is not None:
                tasks.start(extension.run(context), name="extension")
            async with listening(served[0], *self.bind, served[1]) as (host, port):
                tasks.start(context.run(), name="context")
                announce(self._summary(host, port))
                work = self._work(running, Client(transport), context, metrics)
                await _until(terminated, work)

    async def _extension(self, client: Client) -> Extension | None:
        """Return the webhooks and the API for the API server, if installed.  Raises CannotStart."""
        if not self.install_namespace:
            return None
        try:
            return await Extension.open(client, self.config, self.install_namespace)
        except ApiError as error:
            raise CannotStart(f"{self.config.server}: {error.message}") from error

    def _work(
        self,
        running: Sequence[Controller[Any]],
        client: Client,
        context: ControllerContext,
        metrics: Registry,
    ) -> Coroutine[Any, Any, None]:
        """Return the controllers' work, which waits for the election if there is one."""

        async def act() -> None:
            async with Background() as tasks:
                for each in running:
                    tasks.start(each.run(), name=each.name)
                await asyncio.Event().wait()

        if self.lease is None:
            return act()
        election = LeaderElection(
            client, self.lease, _identity(), clock=context.clock, timing=self.timing
        )
        metrics.add("leader election", election.families)
        return election.run(act)

    def _summary(self, host: str, port: int) -> dict[str, str]:
        scheme = "https" if self.install_namespace else "http"
        return {
            "headline": f"controllers for {self.config.server}",
            "health": f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/readyz",
            "leader": f"elected by the Lease {self.lease}" if self.lease else "this process alone",
        }


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _until(terminated: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run the work until it ends or the process is asked to end; raises what the work raises."""
    working = asyncio.create_task(work, name="work")
    ending = asyncio.create_task(terminated.wait(), name="termination")
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        working.cancel()
        await asyncio.wait({working})
    if not working.cancelled() and (error := working.exception()) is not None:
        log.error("stopped", error=str(error))
        raise error


def _fault(context: ControllerContext) -> str:
    """Return why the controllers cannot act yet, if so."""
    missing = context.informers.unsynced()
    return f"no list yet of {', '.join(missing)}" if missing else ""


def _identity() -> str:
    """Return an identity that no other candidate has: hosts may have the same name."""
    return f"{socket.gethostname().lower()}_{secrets.token_hex(8)}"
