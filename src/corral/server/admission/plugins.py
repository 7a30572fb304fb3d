"""The built-in admission plugins of a server: one of each, by the kinds that they are about."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from corral.api.kinds.core.pod import POD
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.kinds.networking.service import SERVICE
from corral.api.kinds.priority_class import PRIORITY_CLASS
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.object import Document
from corral.server.admission import ephemeral_containers
from corral.server.admission.certificate_requests import Signing
from corral.server.admission.clone_authorization import Clones
from corral.server.admission.external_ips import Exposure
from corral.server.admission.instancetypes import Instancetypes
from corral.server.admission.limit_ranger import LimitRanges
from corral.server.admission.priority import Priorities
from corral.server.admission.service_allocation import Allocation, ServiceRanges
from corral.server.admission.storage_class import ClaimClasses
from corral.server.authz.authorizer import Authorizer
from corral.server.authz.escalation import Escalation
from corral.server.request.call import Guard, Prepare, storage
from corral.server.strategy.validation import Allocate
from corral.store import Store


@dataclass(frozen=True, slots=True)
class Plugins:
    """What the plugins do with documents, each by the name that their kind is stored under.

    ``preparers`` give documents what depends on the call, ``allocators`` what only the server has
    to give; ``guards`` refuse who may not store such a document.
    """

    preparers: Mapping[str, Prepare] = field(default_factory=dict)
    allocators: Mapping[str, Allocate] = field(default_factory=dict)
    guards: Mapping[str, Guard] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        store: Store,
        authorizer: Authorizer,
        services: ServiceRanges,
        now: Callable[[], float],
    ) -> Self:
        """All of them; ``services`` are given addresses, ``now`` is seconds since 1970."""
        signing, clones = Signing(authorizer, now), Clones(store, authorizer)
        limits, priorities = LimitRanges(store), Priorities(store)
        return cls(
            preparers={
                **signing.preparers(),
                **ephemeral_containers.PREPARERS,
                **clones.preparers(),
            },
            allocators={
                storage(SERVICE): Allocation(store, services).allocate,
                storage(VIRTUAL_MACHINE): Instancetypes(store).settle,
                storage(CLAIM): _each(ClaimClasses(store).settle, limits.check_claim),
                storage(POD): _each(priorities.settle_pod, limits.settle_pod),
                storage(PRIORITY_CLASS): priorities.check_class,
                **signing.checks(),
            },
            guards={
                **Escalation(authorizer).guards(),
                **clones.guards(),
                **Exposure(store, services, authorizer).guards(),
                **signing.guards(),
            },
        )


def _each(*steps: Allocate) -> Allocate:
    """One step after the other."""

    def allocate(document: Document, old: Document | None) -> None:
        for step in steps:
            step(document, old)

    return allocate
