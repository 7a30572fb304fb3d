"""APIService: who serves a group and version (apiregistration.k8s.io/v1).

All of them are served here: clients look at these to learn whether they are available.
"""

from typing import Final

from lightkube.models.apiregistration_v1 import APIService

from corral.api.kind import Column, GroupVersion, Verdict, at
from corral.api.kinds.causes import forbidden
from corral.api.kinds.columns import age
from corral.api.kinds.crd.well_known import CONTROLLER_USER
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.object import Document

GROUP: Final = "apiregistration.k8s.io"
AUTOMANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
_CORE_PRIORITY: Final = 18000
_OWN_PRIORITY: Final = 17000
_BROUGHT_PRIORITY: Final = 1000


def name_of(group_version: GroupVersion) -> str:
    """What the APIService of a group and version is called: ``v1.apps``; the core's ends so."""
    return f"{group_version.version}.{group_version.group}"


def local(group_version: GroupVersion, *, brought: bool) -> Document:
    """The APIService of what is served here; ``brought`` at run time, by a definition."""
    priority = _BROUGHT_PRIORITY if brought else _OWN_PRIORITY
    if not group_version.group:
        priority = _CORE_PRIORITY
    return {
        "metadata": {
            "name": name_of(group_version),
            "labels": {AUTOMANAGED: "true" if brought else "onstart"},
        },
        "spec": {
            "group": group_version.group,
            "version": group_version.version,
            "groupPriorityMinimum": priority,
            "versionPriority": 100 if brought else 15,
        },
    }


def available(now: str) -> Document:
    """The status of what is served here."""
    condition = {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    return {"conditions": [condition]}


def _validate(_document: Document, _old: Document | None, user: str) -> Verdict:
    if user == CONTROLLER_USER:
        return Verdict()
    why = (
        "corral serves all of its API itself and asks no other server; for kinds of your own "
        "create a CustomResourceDefinition"
    )
    return Verdict([forbidden("spec", why)])


def _service(document: Document) -> str:
    service = at(document, "spec", "service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def _available(document: Document) -> str:
    for condition in at(document, "status", "conditions") or ():
        if condition.get("type") == "Available":
            if condition.get("status") == "True":
                return "True"
            return f"{condition.get('status')} ({condition.get('reason')})"
    return "Unknown"


API_SERVICE: Final = kubernetes_kind(
    group=GROUP,
    plural="apiservices",
    categories=("api-extensions",),
    view=APIService,
    namespaced=False,
    columns=(
        Column(name="Service", cell=_service, description="who serves it"),
        Column(name="Available", cell=_available, description="whether it can be asked for"),
        age(),
    ),
    validate=_validate,
)
