"""Kinds that are served and stored, but not implemented.

Kubernetes' schedulers and controllers, KubeVirt's, and operators list and watch these before they
start: if one is not served they wait for ever.  Writes of them get a warning.  Kinds that request
an operation are refused if they are KubeVirt's (``kubevirt``); Kubernetes' are stored, since
another controller may implement them.
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
"""Kinds of Kubernetes."""
KUBEVIRT = kubevirt.KINDS
"""Kinds of KubeVirt and CDI."""
