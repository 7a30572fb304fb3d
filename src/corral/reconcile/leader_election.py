"""Leader election by a Lease: of several processes one acts (client-go's leaderelection).

Clocks of hosts are not compared: a candidate measures on its own clock for how long it has seen no
renewal.  A leader that fails to renew in time stops before another candidate may act.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog
from lightkube.models.coordination_v1 import Lease

from corral.aio import Background
from corral.api.errors import ApiError, Conflict, NotFound
from corral.api.object import Document, Key
from corral.api.time import rfc3339_micro
from corral.client.client import Client
from corral.failures import describe
from corral.metrics import Family, gauge
from corral.reconcile.events import Clock
from corral.reconcile.objects import version_of

_RELEASE_SECONDS: Final = 3.0
"""Time for which a leader that ends tries to release its Lease."""
_RELEASED_SECONDS: Final = 1
"""leaseDurationSeconds of a released Lease, as client-go's."""

log = structlog.get_logger()


class LeadershipLostError(Exception):
    """Another process may lead from now on: the Lease was not renewed in time."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of an election, in seconds.

    lease: how long candidates wait after the last renewal that they see.
    renew: how long a leader acts after its last renewal; less than ``lease``.
    retry: between two attempts.

    client-go's defaults are 15, 10 and 2.  Its candidates see a renewal up to 4.4 s late, so that a
    dead leader is replaced after up to 24 s.  Candidates here try at the very end of a Lease, and
    with 12 s the sum of ``lease`` and ``retry`` stays below 15 s.
    """

    lease: float = 12.0
    renew: float = 8.0
    retry: float = 2.0


class _Record(NamedTuple):
    """The fields that change with each renewal."""

    holder: str
    renewed: datetime | None
    transitions: int


class LeaderElection:
    """One candidate of an election; ``identity`` differs between all of them."""

    def __init__(
        self,
        client: Client,
        lease: Key,
        identity: str,
        *,
        clock: Clock,
        timing: Timing | None = None,
    ) -> None:
        self._client = client
        self._lease = lease
        self._identity = identity
        self._clock = clock
        self._timing = timing or Timing()
        self._observed = _Record("", None, 0)
        self._version = ""
        """The resourceVersion of ``_observed``."""
        self._observed_at = 0.0
        """Time at which ``_observed`` was first seen, on the event loop's clock."""
        self._observed_duration = 0.0
        self._acquired: datetime | None = None
        self._leads = False

    @property
    def leads(self) -> bool:
        """True if this candidate leads."""
        return self._leads

    @property
    def leader(self) -> str:
        """The identity of the leader as last observed; empty if there is none."""
        return self._observed.holder

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait until this candidate is elected, then run ``lead`` as long as it leads.

        When cancelled, ``lead`` ends first, then the Lease is released.  Raises
        LeadershipLostError after ``lead`` has been cancelled.
        """
        await self._acquire()
        log.info("leading", lease=str(self._lease), identity=self._identity)
        self._leads = True
        try:
            async with Background() as tasks:
                tasks.start(lead(), name="leading")
                await self._renew()
        except* LeadershipLostError as lost:
            self._leads = False
            raise lost.exceptions[0] from None
        finally:
            if self._leads:
                self._leads = False
                await self._release()

    async def families(self) -> Iterable[Family]:
        """Return client-go's metric of elections."""
        family = gauge("leader_election_master_status", "Whether this process leads.")
        family.add(float(self._leads), {"name": self._lease.name})
        return (family,)

    async def _acquire(self) -> None:
        while not await self._attempt():
            # At the end of the Lease at the latest; spread, since candidates start together.
            jitter = self._timing.retry * random.uniform(0.8, 1.0)  # noqa: S311 - spreads load
            await asyncio.sleep(max(0.05, min(jitter, self._remaining())))

    async def _attempt(self) -> bool:
        try:
            async with asyncio.timeout(self._timing.renew):
                return await self._acquire_or_renew()
        except (ApiError, TimeoutError) as error:
            log.warning("leader election failed, will retry", error=describe(error))
            return False

    async def _renew(self) -> None:
        """Renew the Lease for as long as that succeeds; raises LeadershipLostError."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            await asyncio.sleep(self._timing.retry)
            try:
                async with asyncio.timeout_at(renewed + self._timing.renew):
                    started = loop.time()
                    while not await self._renewed():
                        await asyncio.sleep(self._timing.retry)
                        started = loop.time()
            except TimeoutError:
                raise LeadershipLostError(
                    f"{self._lease} was not renewed within {self._timing.renew:g} s"
                ) from None
            renewed = started

    async def _renewed(self) -> bool:
        try:
            if await self._acquire_or_renew():
                return True
        except ApiError as error:
            log.warning("the Lease was not renewed, will retry", error=describe(error))
            return False
        if self._observed.holder not in ("", self._identity):
            raise LeadershipLostError(f"{self._observed.holder} holds {self._lease} now")
        return False

    async def _acquire_or_renew(self) -> bool:
        """Acquire or renew the Lease; False if another candidate holds it.  Raises ApiError.

        A leader writes without a read before: under load each request may take seconds, and
        another candidate that acquires the Lease changes its version (client-go's fast path).
        """
        if self._leads and self._observed.holder == self._identity:
            with suppress(Conflict, NotFound):
                await self._write(self._observed.transitions, self._version)
                return True
        try:
            lease = await self._client.get(Lease, self._lease.name, self._lease.namespace)
        except NotFound:
            document = self._document(self._spec(transitions=0))
            self._observe(await self._client.create(Lease, document))
            return True
        self._observe(lease)
        holder, _, transitions = self._observed
        if holder not in ("", self._identity):
            if self._remaining() > 0:
                return False
            transitions += 1
        await self._write(transitions, version_of(lease))
        return True

    async def _write(self, transitions: int, version: str) -> None:
        document = self._document(self._spec(transitions=transitions), version)
        self._observe(await self._client.replace(Lease, document))

    def _observe(self, lease: Lease) -> None:
        spec: Any = lease.spec
        record = _Record(
            (spec and spec.holderIdentity) or "",
            spec and spec.renewTime,
            (spec and spec.leaseTransitions) or 0,
        )
        self._version = version_of(lease)
        self._observed_duration = float((spec and spec.leaseDurationSeconds) or 0)
        if record != self._observed or not self._observed_at:
            self._observed = record
            self._observed_at = asyncio.get_running_loop().time()

    def _remaining(self) -> float:
        """Return the seconds until the Lease of another candidate has ended."""
        ends = self._observed_at + self._observed_duration
        return ends - asyncio.get_running_loop().time()

    def _spec(self, *, transitions: int) -> Document:
        now = self._clock()
        if self._observed.holder != self._identity or self._acquired is None:
            self._acquired = now
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._timing.lease)),
            "acquireTime": rfc3339_micro(self._acquired),
            "renewTime": rfc3339_micro(now),
            "leaseTransitions": transitions,
        }

    def _document(self, spec: Document, version: str = "") -> Document:
        metadata = {"name": self._lease.name, "namespace": self._lease.namespace}
        return {
            "metadata": metadata | ({"resourceVersion": version} if version else {}),
            "spec": spec,
        }

    async def _release(self) -> None:
        """Let others lead at once (client-go's ReleaseOnCancel)."""
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                # A renewal that was cancelled may be stored, so the cached version may be old.
                lease = await self._client.get(Lease, self._lease.name, self._lease.namespace)
                self._observe(lease)
                if self._observed.holder != self._identity:
                    return
                spec = self._spec(transitions=self._observed.transitions) | {
                    "holderIdentity": "",
                    "leaseDurationSeconds": _RELEASED_SECONDS,
                }
                await self._client.replace(Lease, self._document(spec, version_of(lease)))
