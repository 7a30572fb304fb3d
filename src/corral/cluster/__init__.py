"""Stand-ins for what Kubernetes brings: scheduler, volumes, garbage collector, lost nodes.

Where corral runs on a cluster these stay away.  To add one: write its file, name it in STAND_INS.
"""

from collections.abc import Callable
from typing import Any

from corral.cluster import (
    aggregation,
    autoscaler,
    catalog,
    certificates,
    claims,
    definitions,
    disruption,
    endpoints,
    garbage,
    installation,
    namespace,
    node_taints,
    nodes,
    podgc,
    policy_types,
    quota,
    scheduler,
    system_namespaces,
)
from corral.reconcile.controller import Controller
from corral.reconcile.world import World

STAND_INS: tuple[Callable[[World], Controller[Any]], ...] = (
    scheduler.controller,
    claims.default_class,
    claims.binder,
    claims.protection,
    podgc.controller,
    endpoints.controller,
    disruption.controller,
    nodes.controller,
    node_taints.controller,
    autoscaler.controller,
    aggregation.controller,
    certificates.cleaner,
    policy_types.controller,
    quota.controller,
    system_namespaces.controller,
    installation.controller,
    definitions.controller,
    catalog.controller,
    garbage.controller,
    namespace.controller,
)
"""Each makes one loop; they run beside each other and meet only in the API's objects.

The last three look at the metadata of every kind, and share the caches of those before them.
"""
