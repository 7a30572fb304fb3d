"""The table of kinds that are served.  To add one: write its module here, and add it to KINDS.

Rows are ``corral.api.kind.Kind``.  The server looks up rows at each request, so that kinds can be
added while it runs.
"""

from typing import Final

from corral.api.kinds import (
    admissionregistration,
    api_service,
    controller_revision,
    pod_disruption_budget,
    priority_class,
    runtime_class,
    unimplemented,
    usage,
    workloads,
)
from corral.api.kinds.auth import authentication, authorization, certificate_signing_request, rbac
from corral.api.kinds.autoscaling import horizontal_pod_autoscaler
from corral.api.kinds.cdi import kinds as cdi
from corral.api.kinds.core import event, kinds as core, limit_range, pod, resource_quota
from corral.api.kinds.corral import kinds as own
from corral.api.kinds.crd import definition
from corral.api.kinds.kubevirt import (
    installation,
    instancetype_kinds,
    kinds as kubevirt,
    migration_kinds,
)
from corral.api.kinds.networking import endpoints, endpointslice, ingress, networkpolicy, service
from corral.api.kinds.storage import persistentvolume, persistentvolumeclaim, storageclass
from corral.api.kinds.table import KindTable

KINDS: Final = KindTable(
    (
        *core.KINDS,
        endpoints.ENDPOINTS,
        *event.KINDS,
        *pod.KINDS,
        *workloads.CORE,
        service.SERVICE,
        limit_range.LIMIT_RANGE,
        resource_quota.RESOURCE_QUOTA,
        persistentvolumeclaim.CLAIM,
        persistentvolume.PERSISTENT_VOLUME,
        endpointslice.ENDPOINT_SLICE,
        networkpolicy.NETWORK_POLICY,
        ingress.INGRESS,
        ingress.INGRESS_CLASS,
        pod_disruption_budget.POD_DISRUPTION_BUDGET,
        storageclass.STORAGE_CLASS,
        controller_revision.CONTROLLER_REVISION,
        *workloads.KINDS,
        priority_class.PRIORITY_CLASS,
        runtime_class.RUNTIME_CLASS,
        horizontal_pod_autoscaler.HORIZONTAL_POD_AUTOSCALER,
        *kubevirt.KINDS,
        installation.KUBEVIRT_KIND,
        *instancetype_kinds.KINDS,
        *migration_kinds.KINDS,
        *cdi.KINDS,
        *own.KINDS,
        *unimplemented.KUBEVIRT,
        *usage.KINDS,
        definition.DEFINITION,
        api_service.API_SERVICE,
        *rbac.KINDS,
        *authorization.KINDS,
        *authentication.KINDS,
        certificate_signing_request.SIGNING_REQUEST,
        *admissionregistration.KINDS,
        *unimplemented.KINDS,
    )
)
