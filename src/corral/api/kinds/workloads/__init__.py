"""Workloads of containers: served and stored for the sake of charts and clients, with a warning."""

from corral.api.kinds.workloads.cron_job import CRON_JOB
from corral.api.kinds.workloads.daemon_set import DAEMON_SET
from corral.api.kinds.workloads.deployment import DEPLOYMENT
from corral.api.kinds.workloads.job import JOB
from corral.api.kinds.workloads.pod_template import POD_TEMPLATE
from corral.api.kinds.workloads.replica_set import REPLICA_SET, REPLICATION_CONTROLLER
from corral.api.kinds.workloads.stateful_set import STATEFUL_SET

__all__ = ["CORE", "KINDS"]

CORE = (POD_TEMPLATE, REPLICATION_CONTROLLER)
KINDS = (DAEMON_SET, DEPLOYMENT, REPLICA_SET, STATEFUL_SET, CRON_JOB, JOB)
