"""Documents that tests create, no larger than they need to be."""

from typing import Any

from tests.conformance.api import KUBEVIRT

IMAGE = "kubevirt/cirros-container-disk-demo:latest"


def sets(namespace: str, name: str = "", subresource: str = "") -> str:
    return path(KUBEVIRT, "virtualmachineinstancereplicasets", namespace, name, subresource)


def machines(namespace: str, name: str = "") -> str:
    return path(KUBEVIRT, "virtualmachineinstances", namespace, name)


def core(plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    return path("/api/v1", plural, namespace, name, subresource)


def path(group: str, plural: str, namespace: str, name: str = "", subresource: str = "") -> str:
    scope = f"namespaces/{namespace}" if namespace else ""
    return "/".join(part for part in (group, scope, plural, name, subresource) if part)


def machine(name: str = "", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A machine; without a name the server gives it one."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            **({"name": name} if name else {"generateName": "vmi-"}),
            "labels": labels or {},
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "domain": {
                "devices": {"disks": [{"name": "disk", "disk": {"bus": "virtio"}}]},
                "resources": {"requests": {"memory": "64M"}},
            },
            "volumes": [{"name": "disk", "containerDisk": {"image": IMAGE}}],
            **spec,
        },
    }


def replica_set(
    name: str, replicas: int, *, app: str = "", template_name: str = ""
) -> dict[str, Any]:
    labels = {"app": app or name}
    template = {"metadata": {"labels": labels}, "spec": machine()["spec"]}
    if template_name:
        template["metadata"]["name"] = template_name
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def secret(name: str = "", **data: str) -> dict[str, Any]:
    """A small object of which a namespace has none by itself; values are base64."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _named(name), "data": data}


def config_map(name: str = "", **data: str) -> dict[str, Any]:
    """The smallest object there is."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _named(name), "data": data}


def _named(name: str) -> dict[str, str]:
    return {"name": name} if name else {"generateName": "made-"}
