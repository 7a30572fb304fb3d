"""The table of built-in admission plugins, by the kinds that they handle."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from corral.api.kinds.core.pod import POD
from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE
from corral.api.kinds.networking.service import SERVICE
from corral.api.kinds.priority_class import PRIORITY_CLASS
from corral.api.kinds.storage.persistentvolumeclaim import CLAIM
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.server.admission import default_tolerations, ephemeral_containers, pod_resize
from corral.server.admission.certificate_requests import CertificateRequests
from corral.server.admission.checkpoints import Checkpoints
from corral.server.admission.clone_authorization import CloneAuthorization
from corral.server.admission.external_ips import ServiceExposure
from corral.server.admission.instancetypes import Instancetypes
from corral.server.admission.limit_ranger import LimitRanges
from corral.server.admission.migrations import Migrations
from corral.server.admission.node_restriction import NodeRestriction
from corral.server.admission.priority import Priorities
from corral.server.admission.service_allocation import Allocation, ServiceRanges
from corral.server.admission.storage_class import ClaimStorageClasses
from corral.server.authz.authorizer import Authorizer
from corral.server.authz.escalation import Escalation
from corral.server.request.call import Call, Guard, Prepare, storage
from corral.server.strategy.validation import Allocate
from corral.store import Store

Step = TypeVar("Step")


@dataclass(frozen=True, slots=True)
class Plugins:
    """The steps of all plugins, by the resource name of the stored kind.

    ``creators`` complete new objects by others that they name; ``preparers`` set fields that depend
    on the call, ``allocators`` set and check fields that depend on other objects; ``guards`` check
    the user's rights to store such a document.
    """

    creators: Mapping[str, Prepare] = field(default_factory=dict)
    preparers: Mapping[str, Prepare] = field(default_factory=dict)
    allocators: Mapping[str, Allocate] = field(default_factory=dict)
    guards: Mapping[str, Guard] = field(default_factory=dict)

    def within(self, kinds: KindTable) -> Self:
        """Return the steps for kinds of a table: a definition may define others of their names."""
        served = {storage(kind) for kind in kinds}
        return type(self)(
            creators=_only(served, self.creators),
            preparers=_only(served, self.preparers),
            allocators=_only(served, self.allocators),
            guards=_only(served, self.guards),
        )

    @classmethod
    def of(
        cls,
        store: Store,
        authorizer: Authorizer,
        services: ServiceRanges,
        now: Callable[[], float],
    ) -> Self:
        """Return the plugins; ``services`` are address ranges, ``now`` is seconds since 1970."""
        signing, clones = (
            CertificateRequests(authorizer, now),
            CloneAuthorization(store, authorizer),
        )
        limits, priorities = LimitRanges(store), Priorities(store)
        return cls(
            creators=Checkpoints(store).creators(),
            preparers={
                **signing.preparers(),
                storage(POD): _prepare_pod,
                **clones.preparers(),
            },
            allocators={
                storage(SERVICE): Allocation(store, services).allocate,
                storage(VIRTUAL_MACHINE): Instancetypes(store).admit,
                storage(CLAIM): _chain(ClaimStorageClasses(store).admit, limits.check_claim),
                storage(POD): _chain(
                    priorities.admit_pod, default_tolerations.admit_pod, limits.admit_pod
                ),
                storage(PRIORITY_CLASS): priorities.check_class,
                **signing.checks(),
            },
            guards=_all_guards(
                Escalation(authorizer).guards(),
                clones.guards(),
                ServiceExposure(store, services, authorizer).guards(),
                signing.guards(),
                NodeRestriction(store, services.routed_pods).guards(),
                Migrations(store).guards(),
            ),
        )


def _prepare_pod(call: Call, document: Document, old: Document | None) -> None:
    ephemeral_containers.prepare(call, document, old)
    pod_resize.prepare(call, document, old)


def _only(names: Container[str], steps: Mapping[str, Step]) -> Mapping[str, Step]:
    return {name: step for name, step in steps.items() if name in names}


def _all_guards(*plugins: Mapping[str, Guard]) -> Mapping[str, Guard]:
    """Return the guards of several plugins; those of one kind run in order."""
    by_kind: dict[str, list[Guard]] = {}
    for guards in plugins:
        for kind, guard in guards.items():
            by_kind.setdefault(kind, []).append(guard)
    return {kind: _guard_by_all(guards) for kind, guards in by_kind.items()}


def _guard_by_all(guards: Sequence[Guard]) -> Guard:
    def guard(call: Call, document: Document, old: Document | None) -> None:
        for each in guards:
            each(call, document, old)

    return guard


def _chain(*steps: Allocate) -> Allocate:
    """Return a step that runs several steps in order."""

    def allocate(document: Document, old: Document | None) -> None:
        for step in steps:
            step(document, old)

    return allocate
