"""Stand-ins for what Kubernetes brings: scheduler, volumes, garbage collector, lost nodes.

Where corral runs on a cluster these stay away.  To add one: write its file, name it in STAND_INS.
"""

from collections.abc import Callable
from typing import Any

from corral.cluster import (
    api_services,
    autoscaler,
    certificates,
    clusterrole_aggregation,
    crd,
    disruption,
    endpoints,
    garbage_collector,
    kubevirt_object,
    namespace,
    node_lifecycle,
    persistent_volumes,
    pod_gc,
    resource_quota,
    scheduler,
    system_namespaces,
    validating_policy_status,
)
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller

STAND_INS: tuple[Callable[[ControllerContext], Controller[Any]], ...] = (
    scheduler.controller,
    persistent_volumes.default_class,
    persistent_volumes.binder,
    persistent_volumes.protection,
    pod_gc.controller,
    endpoints.controller,
    disruption.controller,
    node_lifecycle.controller,
    node_lifecycle.taint_controller,
    autoscaler.controller,
    clusterrole_aggregation.controller,
    certificates.cleaner,
    validating_policy_status.controller,
    resource_quota.controller,
    system_namespaces.controller,
    kubevirt_object.controller,
    crd.controller,
    api_services.controller,
    garbage_collector.controller,
    namespace.controller,
)
"""Each makes one loop; they run beside each other and meet only in the API's objects.

The last three look at the metadata of every kind, and share the caches of those before them.
"""
