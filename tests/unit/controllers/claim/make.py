"""Claims for tests of what is decided about them."""

import msgspec

from corral.api.kinds.corral.claim import VirtualMachineClaim
from corral.api.kinds.corral.warm_pool import VirtualMachineWarmPool

CREATED = "2026-01-01T00:00:00Z"


def claim(name="job", *, version="7", created=CREATED, status=None, **spec) -> VirtualMachineClaim:
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "creationTimestamp": created,
            "generation": 1,
        },
        "spec": {"warmPoolRef": {"name": "spares"}, **spec},
        "status": status or {},
    }
    return msgspec.convert(document, VirtualMachineClaim)


def pool(**spec) -> VirtualMachineWarmPool:
    document = {"metadata": {"name": "spares", "namespace": "default"}, "spec": spec}
    return msgspec.convert(document, VirtualMachineWarmPool)
