"""Numbers of the fields of workloads and what goes with them, written as those in ``numbers``."""

from collections.abc import Mapping

_OBJECT = "metadata=1 spec=2 status=3"
_CONDITION = "type=1 status=2 lastTransitionTime=3 reason=4 message=5"

WORKLOAD_NUMBERS: Mapping[str, str] = {
    "core_v1.PodTemplate": "metadata=1 template=2",
    "core_v1.PodTemplateSpec": "metadata=1 spec=2",
    "core_v1.ReplicationController": _OBJECT,
    "core_v1.ReplicationControllerSpec": "replicas=1* selector=2 template=3 minReadySeconds=4",
    "core_v1.ReplicationControllerStatus": (
        "replicas=1 fullyLabeledReplicas=2 observedGeneration=3 readyReplicas=4 "
        "availableReplicas=5 conditions=6"
    ),
    "core_v1.ReplicationControllerCondition": _CONDITION,
    # ------------------------------------------------------------------- apps
    "apps_v1.ControllerRevision": "metadata=1 data=2 revision=3",
    "apps_v1.DaemonSet": _OBJECT,
    "apps_v1.DaemonSetSpec": (
        "selector=1 template=2 updateStrategy=3 minReadySeconds=4 revisionHistoryLimit=6*"
    ),
    "apps_v1.DaemonSetUpdateStrategy": "type=1 rollingUpdate=2",
    "apps_v1.RollingUpdateDaemonSet": "maxUnavailable=1 maxSurge=2",
    "apps_v1.DaemonSetStatus": (
        "currentNumberScheduled=1 numberMisscheduled=2 desiredNumberScheduled=3 numberReady=4 "
        "observedGeneration=5 updatedNumberScheduled=6 numberAvailable=7 numberUnavailable=8 "
        "collisionCount=9* conditions=10"
    ),
    "apps_v1.DaemonSetCondition": _CONDITION,
    "apps_v1.Deployment": _OBJECT,
    "apps_v1.DeploymentSpec": (
        "replicas=1* selector=2 template=3 strategy=4 minReadySeconds=5 revisionHistoryLimit=6* "
        "paused=7 progressDeadlineSeconds=9*"
    ),
    "apps_v1.DeploymentStrategy": "type=1 rollingUpdate=2",
    "apps_v1.RollingUpdateDeployment": "maxUnavailable=1 maxSurge=2",
    "apps_v1.DeploymentStatus": (
        "observedGeneration=1 replicas=2 updatedReplicas=3 availableReplicas=4 "
        "unavailableReplicas=5 conditions=6 readyReplicas=7 collisionCount=8* "
        "terminatingReplicas=9*"
    ),
    "apps_v1.DeploymentCondition": (
        "type=1 status=2 reason=4 message=5 lastUpdateTime=6 lastTransitionTime=7"
    ),
    "apps_v1.ReplicaSet": _OBJECT,
    "apps_v1.ReplicaSetSpec": "replicas=1* selector=2 template=3 minReadySeconds=4",
    "apps_v1.ReplicaSetStatus": (
        "replicas=1 fullyLabeledReplicas=2 observedGeneration=3 readyReplicas=4 "
        "availableReplicas=5 conditions=6 terminatingReplicas=7*"
    ),
    "apps_v1.ReplicaSetCondition": _CONDITION,
    "apps_v1.StatefulSet": _OBJECT,
    "apps_v1.StatefulSetSpec": (
        "replicas=1* selector=2 template=3 volumeClaimTemplates=4 serviceName=5 "
        "podManagementPolicy=6 updateStrategy=7 revisionHistoryLimit=8* minReadySeconds=9 "
        "persistentVolumeClaimRetentionPolicy=10 ordinals=11"
    ),
    "apps_v1.StatefulSetUpdateStrategy": "type=1 rollingUpdate=2",
    "apps_v1.RollingUpdateStatefulSetStrategy": "partition=1* maxUnavailable=2",
    "apps_v1.StatefulSetPersistentVolumeClaimRetentionPolicy": "whenDeleted=1 whenScaled=2",
    "apps_v1.StatefulSetOrdinals": "start=1",
    "apps_v1.StatefulSetStatus": (
        "observedGeneration=1 replicas=2 readyReplicas=3 currentReplicas=4 updatedReplicas=5 "
        "currentRevision=6 updateRevision=7 collisionCount=9* conditions=10 availableReplicas=11"
    ),
    "apps_v1.StatefulSetCondition": _CONDITION,
    # ------------------------------------------------------------------ batch
    "batch_v1.CronJob": _OBJECT,
    "batch_v1.CronJobSpec": (
        "schedule=1 startingDeadlineSeconds=2* concurrencyPolicy=3 suspend=4* jobTemplate=5 "
        "successfulJobsHistoryLimit=6* failedJobsHistoryLimit=7* timeZone=8*"
    ),
    "batch_v1.CronJobStatus": "active=1 lastScheduleTime=4 lastSuccessfulTime=5",
    "batch_v1.JobTemplateSpec": "metadata=1 spec=2",
    "batch_v1.Job": _OBJECT,
    "batch_v1.JobSpec": (
        "parallelism=1* completions=2* activeDeadlineSeconds=3* selector=4 manualSelector=5* "
        "template=6 backoffLimit=7* ttlSecondsAfterFinished=8* completionMode=9* suspend=10* "
        "podFailurePolicy=11 backoffLimitPerIndex=12* maxFailedIndexes=13* "
        "podReplacementPolicy=14* managedBy=15* successPolicy=16"
    ),
    "batch_v1.PodFailurePolicy": "rules=1",
    "batch_v1.PodFailurePolicyRule": "action=1 onExitCodes=2 onPodConditions=3",
    "batch_v1.PodFailurePolicyOnExitCodesRequirement": "containerName=1* operator=2 values=3",
    "batch_v1.PodFailurePolicyOnPodConditionsPattern": "type=1 status=2",
    "batch_v1.SuccessPolicy": "rules=1",
    "batch_v1.SuccessPolicyRule": "succeededIndexes=1* succeededCount=2*",
    "batch_v1.JobStatus": (
        "conditions=1 startTime=2 completionTime=3 active=4 succeeded=5 failed=6 "
        "completedIndexes=7 uncountedTerminatedPods=8 ready=9* failedIndexes=10* terminating=11*"
    ),
    "batch_v1.JobCondition": (
        "type=1 status=2 lastProbeTime=3 lastTransitionTime=4 reason=5 message=6"
    ),
    "batch_v1.UncountedTerminatedPods": "succeeded=1 failed=2",
    # ------------------------------------------------- what goes with them
    "scheduling_v1.PriorityClass": (
        "metadata=1 value=2 globalDefault=3 description=4 preemptionPolicy=5*"
    ),
    "node_v1.RuntimeClass": "metadata=1 handler=2 overhead=3 scheduling=4",
    "node_v1.Overhead": "podFixed=1",
    "node_v1.Scheduling": "nodeSelector=1 tolerations=2",
    "networking_v1.Ingress": _OBJECT,
    "networking_v1.IngressSpec": "defaultBackend=1 tls=2 rules=3 ingressClassName=4*",
    "networking_v1.IngressTLS": "hosts=1 secretName=2",
    "networking_v1.IngressRule": "host=1 +networking_v1.IngressRuleValue=2",
    "networking_v1.IngressRuleValue": "http=1",
    "networking_v1.HTTPIngressRuleValue": "paths=1",
    "networking_v1.HTTPIngressPath": "path=1 pathType=3* backend=2",
    "networking_v1.IngressBackend": "resource=3 service=4",
    "networking_v1.IngressServiceBackend": "name=1 port=2",
    "networking_v1.ServiceBackendPort": "name=1 number=2",
    "networking_v1.IngressStatus": "loadBalancer=1",
    "networking_v1.IngressLoadBalancerStatus": "ingress=1",
    "networking_v1.IngressLoadBalancerIngress": "ip=1 hostname=2 ports=4",
    "networking_v1.IngressPortStatus": "port=1 protocol=2 error=3*",
    "networking_v1.IngressClass": "metadata=1 spec=2",
    "networking_v1.IngressClassSpec": "controller=1 parameters=2",
    "networking_v1.IngressClassParametersReference": (
        "apiGroup=1* kind=2 name=3 scope=4* namespace=5*"
    ),
    "core_v1.TypedLocalObjectReference": "apiGroup=1* kind=2 name=3",
}
