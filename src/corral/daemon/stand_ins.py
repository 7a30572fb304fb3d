"""The list of all stand-ins that need nothing but a context."""

from collections.abc import Callable
from typing import Any

from corral.cluster import (
    api_services,
    autoscaler,
    bootstrap_token_cleaner,
    certificates,
    clusterrole_aggregation,
    crd,
    descheduler,
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
    storage_capacity,
    system_namespaces,
    taint_eviction,
    validating_policy_status,
)
from corral.reconcile.context import ControllerContext
from corral.reconcile.controller import Controller

STAND_INS: tuple[Callable[[ControllerContext], Controller[Any]], ...] = (
    scheduler.controller,
    storage_capacity.controller,
    persistent_volumes.default_class,
    persistent_volumes.binder,
    persistent_volumes.protection,
    pod_gc.controller,
    endpoints.controller,
    disruption.controller,
    descheduler.controller,
    node_lifecycle.controller,
    node_lifecycle.taint_controller,
    taint_eviction.controller,
    autoscaler.controller,
    clusterrole_aggregation.controller,
    certificates.approver,
    certificates.cleaner,
    bootstrap_token_cleaner.controller,
    validating_policy_status.controller,
    resource_quota.controller,
    system_namespaces.controller,
    kubevirt_object.controller,
    crd.controller,
    api_services.controller,
    garbage_collector.controller,
    namespace.controller,
)
"""Factories; each makes one controller, and controllers meet only in the API's objects. The last
three read the metadata of every kind, and share the caches of those before them."""
