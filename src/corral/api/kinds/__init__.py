"""Every kind that is served.  To add one: write its file here, and name it in KINDS.

``corral.api.kind.Kind`` says what a row holds.  The server looks rows up at each request, so that a
kind can be added while it runs.
"""

import msgspec

from corral.api.kind import Kind
from corral.api.kinds import (
    admissionregistration,
    apiservice,
    authentication,
    authorization,
    autoscaler,
    cdi,
    claim,
    core,
    definition,
    disruption,
    endpoints,
    endpointslice,
    event,
    ingress,
    installation,
    instancetype_kinds,
    kubevirt,
    limit_range,
    networkpolicy,
    persistentvolume,
    pod,
    priorityclass,
    quota,
    rbac,
    revision,
    runtimeclass,
    service,
    signing_request,
    storageclass,
    unimplemented,
    usage,
    workloads,
)
from corral.api.kinds.table import KindTable

__all__ = ["KINDS", "KindTable", "kind_of"]

KINDS = KindTable(
    (
        *core.KINDS,
        endpoints.ENDPOINTS,
        *event.KINDS,
        *pod.KINDS,
        *workloads.CORE,
        service.SERVICE,
        limit_range.LIMIT_RANGE,
        quota.RESOURCE_QUOTA,
        claim.CLAIM,
        persistentvolume.PERSISTENT_VOLUME,
        endpointslice.ENDPOINT_SLICE,
        networkpolicy.NETWORK_POLICY,
        ingress.INGRESS,
        ingress.INGRESS_CLASS,
        disruption.POD_DISRUPTION_BUDGET,
        storageclass.STORAGE_CLASS,
        revision.CONTROLLER_REVISION,
        *workloads.KINDS,
        priorityclass.PRIORITY_CLASS,
        runtimeclass.RUNTIME_CLASS,
        autoscaler.HORIZONTAL_POD_AUTOSCALER,
        *kubevirt.KINDS,
        installation.KUBEVIRT_KIND,
        *instancetype_kinds.KINDS,
        *cdi.KINDS,
        *unimplemented.KUBEVIRT,
        *usage.KINDS,
        definition.DEFINITION,
        apiservice.API_SERVICE,
        *rbac.KINDS,
        *authorization.KINDS,
        *authentication.KINDS,
        signing_request.SIGNING_REQUEST,
        *admissionregistration.KINDS,
        *unimplemented.KINDS,
    )
)


def kind_of(view: type[msgspec.Struct]) -> Kind:
    """The row of the kind that a view reads.  Raises KeyError for a Struct that is no view."""
    return KINDS.of_view(view)
