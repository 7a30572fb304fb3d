"""Flow control of the controllers' requests: they go before those of ordinary ServiceAccounts.

The FlowSchemas name Kubernetes' own priority levels, as those of kube-controller-manager do.
"""

from collections.abc import Iterator
from typing import Final

from corral.api.kinds.auth.rbac import SERVICE_ACCOUNT
from corral.api.object import Document
from corral.daemon.install.options import CONTROLLERS, Options, document

_API_VERSION: Final = "flowcontrol.apiserver.k8s.io/v1"
_LEASES_PRECEDENCE: Final = 150
"""Before that of ServiceAccounts, 9000, and after ``system-leader-election``, 100."""
_CONTROLLERS_PRECEDENCE: Final = 800
"""Precedence of ``kube-controller-manager``."""


def documents(options: Options) -> Iterator[Document]:
    """Yield the FlowSchemas.

    Leases are apart: a leader must renew its own while the controllers send many requests.
    """
    yield _flow_schema(
        options,
        "corral-leader-election",
        "leader-election",
        _LEASES_PRECEDENCE,
        {
            "verbs": ["get", "create", "update"],
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "namespaces": [options.namespace],
        },
    )
    yield _flow_schema(
        options,
        CONTROLLERS,
        "workload-high",
        _CONTROLLERS_PRECEDENCE,
        {
            "verbs": ["*"],
            "apiGroups": ["*"],
            "resources": ["*"],
            "clusterScope": True,
            "namespaces": ["*"],
        },
    )


def _flow_schema(
    options: Options, name: str, level: str, precedence: int, resources: Document
) -> Document:
    account = {"name": CONTROLLERS, "namespace": options.namespace}
    return document(
        _API_VERSION,
        "FlowSchema",
        name,
        spec={
            "distinguisherMethod": {"type": "ByUser"},
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "rules": [
                {
                    "subjects": [{"kind": SERVICE_ACCOUNT, "serviceAccount": account}],
                    "resourceRules": [resources],
                }
            ],
        },
    )
