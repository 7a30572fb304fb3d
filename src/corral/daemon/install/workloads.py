"""Processes of an installation: a Deployment of controllers, and a DaemonSet of nodes.

Both read a kubeconfig from a ConfigMap that names the files of their ServiceAccount.
"""

from collections.abc import Iterator
from typing import Any, Final

from corral.api import yaml
from corral.api.kinds import api_service
from corral.api.object import Document
from corral.controllers.serving_certificate import API_SERVICES
from corral.daemon.install.options import (
    CONTROLLERS,
    NODE,
    Options,
    document,
)

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_KUBECONFIG: Final = "/etc/corral/kubeconfig"
_CONFIG: Final = "corral-kubeconfig"
_DATA: Final = "/var/lib/corral"
_NAME: Final = "app.kubernetes.io/name"
PORT: Final = 8443
"""Port of the controllers: webhooks, the aggregated API, health and metrics, all over HTTPS."""
KUBELET_PORT: Final = 10260
"""Port of a node of machines, which may stand beside a kubelet with 10250 on the same host."""


def documents(options: Options) -> Iterator[Document]:
    """Yield the configuration, the Service, and the processes."""
    yield document(
        "v1", "ConfigMap", _CONFIG, options.namespace, data={"kubeconfig": yaml.dump(_kubeconfig())}
    )
    yield _service(options)
    yield _controllers(options)
    yield _disruption_budget(options)
    yield _nodes(options)


def api_services(options: Options) -> Iterator[Document]:
    """Yield the APIServices of the aggregated API."""
    service = {"name": CONTROLLERS, "namespace": options.namespace, "port": 443}
    for name in API_SERVICES:
        version, _, group = name.partition(".")
        yield document(
            f"{api_service.GROUP}/v1",
            "APIService",
            name,
            spec={
                "group": group,
                "version": version,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": service,
            },
        )


def _kubeconfig() -> Document:
    """Return a kubeconfig of the API server that a pod is part of."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "kubernetes",
                "cluster": {
                    "server": "https://kubernetes.default.svc",
                    "certificate-authority": f"{_ACCOUNT}/ca.crt",
                },
            }
        ],
        "users": [{"name": "account", "user": {"tokenFile": f"{_ACCOUNT}/token"}}],
        "contexts": [
            {"name": "corral", "context": {"cluster": "kubernetes", "user": "account"}},
        ],
        "current-context": "corral",
    }


def _service(options: Options) -> Document:
    return document(
        "v1",
        "Service",
        CONTROLLERS,
        options.namespace,
        spec={
            "selector": {_NAME: CONTROLLERS},
            "ports": [{"name": "https", "port": 443, "targetPort": PORT}],
        },
    )


def _disruption_budget(options: Options) -> Document:
    return document(
        "policy/v1",
        "PodDisruptionBudget",
        CONTROLLERS,
        options.namespace,
        spec={"minAvailable": 1, "selector": {"matchLabels": {_NAME: CONTROLLERS}}},
    )


def _controllers(options: Options) -> Document:
    selector = {"matchLabels": {_NAME: CONTROLLERS}}
    container = {
        "name": "controllers",
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["corral", "controllers"],
        "args": [
            *("--kubeconfig", _KUBECONFIG, "--bind", f"0.0.0.0:{PORT}"),
            *("--install-namespace", options.namespace),
            *("--leader-elect-resource-namespace", options.namespace),
        ],
        "ports": [{"name": "https", "containerPort": PORT}],
        "livenessProbe": _probe("/healthz"),
        "readinessProbe": _probe("/readyz"),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        # a client certificate is read from a file, hence /tmp
        "volumeMounts": [_config_mount(), {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }
    apart = {
        "weight": 100,
        "podAffinityTerm": {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"},
    }
    spec = {
        "serviceAccountName": CONTROLLERS,
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}
        },
        "containers": [container],
        "volumes": [_config_volume(), {"name": "tmp", "emptyDir": {}}],
    }
    return document(
        "apps/v1",
        "Deployment",
        CONTROLLERS,
        options.namespace,
        spec={"replicas": 2, "selector": selector, "template": _template(CONTROLLERS, spec)},
    )


def _nodes(options: Options) -> Document:
    """Return the DaemonSet of nodes.

    Machines are processes of its pods and end with them, so that it replaces pods only when they
    are deleted.
    """
    paths = {"data": _DATA, "dev": "/dev", "modules": "/lib/modules"}
    container = {
        "name": "node",
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["corral", "node"],
        "args": [
            *("--bootstrap-kubeconfig", _KUBECONFIG, "--provisioner-kubeconfig", _KUBECONFIG),
            *("--data-dir", _DATA),
            *("--name", "$(HOST_NAME)-corral", "--address", "$(HOST_ADDRESS)"),
            *("--port", str(KUBELET_PORT)),
        ],
        "env": [
            {"name": "HOST_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "HOST_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {"privileged": True},
        "volumeMounts": [
            _config_mount(),
            *({"name": name, "mountPath": path} for name, path in paths.items()),
        ],
    }
    spec = {
        "serviceAccountName": NODE,
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "hostPID": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "containers": [container],
        "volumes": [
            _config_volume(),
            *({"name": name, "hostPath": {"path": path}} for name, path in paths.items()),
        ],
    }
    return document(
        "apps/v1",
        "DaemonSet",
        NODE,
        options.namespace,
        spec={
            "selector": {"matchLabels": {_NAME: NODE}},
            "updateStrategy": {"type": "OnDelete"},
            "template": _template(NODE, spec),
        },
    )


def _template(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"labels": {_NAME: name}}, "spec": spec}


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}, "periodSeconds": 5}


def _config_volume() -> dict[str, Any]:
    return {"name": "kubeconfig", "configMap": {"name": _CONFIG}}


def _config_mount() -> dict[str, Any]:
    return {"name": "kubeconfig", "mountPath": "/etc/corral", "readOnly": True}
