"""APIService: the server of a group and version (apiregistration.k8s.io/v1).

All groups are served locally; clients read APIServices to learn whether they are available.
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
_BUILT_IN_PRIORITY: Final = 17000
_CUSTOM_PRIORITY: Final = 1000


def name_of(group_version: GroupVersion) -> str:
    """Return the name of a group and version's APIService: ``v1.apps``; ``v1.`` for the core."""
    return f"{group_version.version}.{group_version.group}"


def local_service(group_version: GroupVersion, *, custom: bool) -> Document:
    """Return a local APIService; ``custom``: of a CustomResourceDefinition."""
    priority = _CUSTOM_PRIORITY if custom else _BUILT_IN_PRIORITY
    if not group_version.group:
        priority = _CORE_PRIORITY
    return {
        "metadata": {
            "name": name_of(group_version),
            "labels": {AUTOMANAGED: "true" if custom else "onstart"},
        },
        "spec": {
            "group": group_version.group,
            "version": group_version.version,
            "groupPriorityMinimum": priority,
            "versionPriority": 100 if custom else 15,
        },
    }


def available_status(now: str) -> Document:
    """Return the status of a local APIService."""
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
        Column(name="Service", cell=_service, description="the server"),
        Column(name="Available", cell=_available, description="whether it is available"),
        age(),
    ),
    validate=_validate,
)
