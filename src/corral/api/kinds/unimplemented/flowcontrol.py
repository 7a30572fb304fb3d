"""FlowSchema and PriorityLevelConfiguration (flowcontrol.apiserver.k8s.io)."""

from typing import Final

from lightkube.models.flowcontrol_v1 import FlowSchema, PriorityLevelConfiguration

from corral.api.kind import Column, at
from corral.api.kinds.columns import NONE, age, condition_status, field
from corral.api.kinds.unimplemented.row import unimplemented
from corral.api.object import Document

_V1: Final = "flowcontrol.apiserver.k8s.io/v1"
_WHY: Final = "corral lets users take turns by a rule of its own"
_DEFAULT_PRECEDENCE: Final = 1000
_QUEUES: Final = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}


def _default_schema(document: Document) -> None:
    document["spec"].setdefault("matchingPrecedence", _DEFAULT_PRECEDENCE)


def _default_level(document: Document) -> None:
    limited = document["spec"].get("limited")
    if limited is None:
        return
    limited.setdefault("nominalConcurrencyShares", 30)
    limited.setdefault("lendablePercent", 0)
    if limited["limitResponse"]["type"] == "Queue":
        queuing = limited["limitResponse"].setdefault("queuing", {})
        for name, value in _QUEUES.items():
            queuing.setdefault(name, value)


def _limit(name: str, *path: str, description: str) -> Column:
    def cell(document: Document) -> str:
        value = at(document, "spec", "limited", *path)
        return NONE if value is None else str(value)

    return Column(name=name, cell=cell, description=description)


KINDS = (
    unimplemented(
        FlowSchema,
        "flowschemas",
        _V1,
        field(
            "PriorityLevel",
            *("spec", "priorityLevelConfiguration", "name"),
            description="the level of its requests",
        ),
        field(
            "MatchingPrecedence",
            "spec",
            "matchingPrecedence",
            description="precedence; lower is matched first",
        ),
        Column(
            name="DistinguisherMethod",
            cell=lambda document: at(document, "spec", "distinguisherMethod", "type") or NONE,
            description="what distinguishes its flows",
        ),
        age(),
        Column(
            name="MissingPL",
            cell=lambda document: condition_status(document, "Dangling") or "?",
            description="whether its level is missing",
        ),
        why=_WHY,
        status=True,
        default=_default_schema,
    ),
    unimplemented(
        PriorityLevelConfiguration,
        "prioritylevelconfigurations",
        _V1,
        field("Type", "spec", "type", description="whether requests of the level are limited"),
        _limit(
            "NominalConcurrencyShares",
            "nominalConcurrencyShares",
            description="its share of concurrent requests",
        ),
        *(
            _limit(name, "limitResponse", "queuing", member, description=description)
            for name, member, description in (
                ("Queues", "queues", "number of its queues"),
                ("HandSize", "handSize", "number of queues of each flow"),
                ("QueueLengthLimit", "queueLengthLimit", "the most requests in each queue"),
            )
        ),
        age(),
        why=_WHY,
        status=True,
        default=_default_level,
    ),
)
