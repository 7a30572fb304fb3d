"""A small operator as people write them with kopf: a Lab is a replica set of machines."""

import kopf
import kubernetes

_SETS = ("kubevirt.io", "v1", "virtualmachineinstancereplicasets")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.persistence.finalizer = "labs.example.com/finalizer"
    settings.watching.server_timeout = 5


def _set(name, seats):
    labels = {"lab": name}
    disk = {"name": "disk", "containerDisk": {"image": "kubevirt/cirros-container-disk-demo"}}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "domain": {
            "devices": {"disks": [{"name": "disk", "disk": {"bus": "virtio"}}]},
            "resources": {"requests": {"memory": "64M"}},
        },
        "volumes": [disk],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": seats,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _objects():
    return kubernetes.client.CustomObjectsApi()


@kopf.on.create("labs.example.com", "v1", "labs")
def create(name, namespace, spec, **_):
    body = _set(name, spec["seats"])
    kopf.adopt(body)
    _objects().create_namespaced_custom_object(*_SETS[:2], namespace, _SETS[2], body)
    return {"seats": spec["seats"]}


@kopf.on.field("labs.example.com", "v1", "labs", field="spec.seats")
def resize(name, namespace, old, new, **_):
    if old is not None:
        change = {"spec": {"replicas": new}}
        _objects().patch_namespaced_custom_object_scale(
            *_SETS[:2], namespace, _SETS[2], name, change
        )


@kopf.on.event(*_SETS)
def count(name, namespace, body, **_):
    owners = body["metadata"].get("ownerReferences", [])
    if any(owner["kind"] == "Lab" for owner in owners):
        ready = body.get("status", {}).get("readyReplicas", 0)
        try:
            _objects().patch_namespaced_custom_object_status(
                "labs.example.com", "v1", namespace, "labs", name, {"status": {"ready": ready}}
            )
        except kubernetes.client.ApiException as error:
            if error.status != 404:  # the lab may be over
                raise


@kopf.on.delete("labs.example.com", "v1", "labs")
def delete(logger, **_):
    logger.info("the lab is over")
