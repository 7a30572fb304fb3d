"""Kinds that are served and kept, and on which nothing here acts.

Kubernetes' own schedulers and controllers, KubeVirt's, and operators list and watch these before
they begin: where one is not served they wait for ever.  Whoever writes an object of them is warned.
What would be an order to do something is refused where it is KubeVirt's (``kubevirt``); Kubernetes'
own orders are kept, since whoever carries them out may run beside.
"""

from corral.api.kinds.unimplemented import (
    admission,
    certificates,
    flowcontrol,
    kubevirt,
    networking,
    resource,
    storage,
    storagemigration,
)

__all__ = ["KINDS", "KUBEVIRT"]

KINDS = (
    *storage.KINDS,
    *networking.KINDS,
    *resource.KINDS,
    *admission.KINDS,
    *certificates.KINDS,
    *storagemigration.KINDS,
    *flowcontrol.KINDS,
)
"""Kubernetes' own."""
KUBEVIRT = kubevirt.KINDS
"""KubeVirt's and CDI's."""
