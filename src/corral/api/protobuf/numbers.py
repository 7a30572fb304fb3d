"""Numbers of fields: facts of Kubernetes' generated.proto files, the part of them that is in use.

Types are named by their module and class in lightkube.models, where the types of their fields
come from.  What a line says: ``field=number``, and after the number

    *   zero and false are told too (a pointer in Go), and not left out as unset
    ~   a MicroTime, told to the microsecond
    !   bytes, or a map to them, which JSON holds in base64
    @   a map to lists of texts

``+Name=number`` is a message whose fields stand in the object itself in JSON.

To read one more kind, name it in KINDS and its types in NUMBERS.  The many types of pods are in
``pod_numbers``, those of volumes in ``storage_numbers``, and those of workloads in
``workload_numbers``.
"""

from collections.abc import Mapping

from corral.api.protobuf.access_numbers import ACCESS_NUMBERS
from corral.api.protobuf.pod_numbers import POD_NUMBERS, REQUIREMENT
from corral.api.protobuf.review_numbers import REVIEW_NUMBERS
from corral.api.protobuf.storage_numbers import STORAGE_NUMBERS
from corral.api.protobuf.workload_numbers import WORKLOAD_NUMBERS

KINDS: Mapping[tuple[str, str], str] = {
    ("v1", "Binding"): "core_v1.Binding",
    ("v1", "ConfigMap"): "core_v1.ConfigMap",
    ("v1", "DeleteOptions"): "meta_v1.DeleteOptions",
    ("v1", "Endpoints"): "core_v1.Endpoints",
    ("v1", "Event"): "core_v1.Event",
    ("v1", "LimitRange"): "core_v1.LimitRange",
    ("v1", "Namespace"): "core_v1.Namespace",
    ("v1", "Node"): "core_v1.Node",
    ("v1", "PersistentVolume"): "core_v1.PersistentVolume",
    ("v1", "PersistentVolumeClaim"): "core_v1.PersistentVolumeClaim",
    ("v1", "Pod"): "core_v1.Pod",
    ("v1", "PodTemplate"): "core_v1.PodTemplate",
    ("v1", "ReplicationController"): "core_v1.ReplicationController",
    ("v1", "ResourceQuota"): "core_v1.ResourceQuota",
    ("v1", "Secret"): "core_v1.Secret",
    ("v1", "Service"): "core_v1.Service",
    ("v1", "ServiceAccount"): "core_v1.ServiceAccount",
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): (
        "admissionregistration_v1.MutatingWebhookConfiguration"
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): (
        "admissionregistration_v1.ValidatingAdmissionPolicy"
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): (
        "admissionregistration_v1.ValidatingAdmissionPolicyBinding"
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): (
        "admissionregistration_v1.ValidatingWebhookConfiguration"
    ),
    ("apps/v1", "ControllerRevision"): "apps_v1.ControllerRevision",
    ("apps/v1", "DaemonSet"): "apps_v1.DaemonSet",
    ("apps/v1", "Deployment"): "apps_v1.Deployment",
    ("apps/v1", "ReplicaSet"): "apps_v1.ReplicaSet",
    ("apps/v1", "StatefulSet"): "apps_v1.StatefulSet",
    ("authentication.k8s.io/v1", "SelfSubjectReview"): "authentication_v1.SelfSubjectReview",
    ("authentication.k8s.io/v1", "TokenRequest"): "authentication_v1.TokenRequest",
    ("authentication.k8s.io/v1", "TokenReview"): "authentication_v1.TokenReview",
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview"): (
        "authorization_v1.LocalSubjectAccessReview"
    ),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): (
        "authorization_v1.SelfSubjectAccessReview"
    ),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): (
        "authorization_v1.SelfSubjectRulesReview"
    ),
    ("authorization.k8s.io/v1", "SubjectAccessReview"): "authorization_v1.SubjectAccessReview",
    ("autoscaling/v1", "Scale"): "autoscaling_v1.Scale",
    ("autoscaling/v1", "HorizontalPodAutoscaler"): "autoscaling_v1.HorizontalPodAutoscaler",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "autoscaling_v2.HorizontalPodAutoscaler",
    ("batch/v1", "CronJob"): "batch_v1.CronJob",
    ("batch/v1", "Job"): "batch_v1.Job",
    ("certificates.k8s.io/v1", "CertificateSigningRequest"): (
        "certificates_v1.CertificateSigningRequest"
    ),
    ("coordination.k8s.io/v1", "Lease"): "coordination_v1.Lease",
    ("discovery.k8s.io/v1", "EndpointSlice"): "discovery_v1.EndpointSlice",
    ("events.k8s.io/v1", "Event"): "events_v1.Event",
    ("meta.k8s.io/v1", "DeleteOptions"): "meta_v1.DeleteOptions",
    ("networking.k8s.io/v1", "Ingress"): "networking_v1.Ingress",
    ("networking.k8s.io/v1", "IngressClass"): "networking_v1.IngressClass",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networking_v1.NetworkPolicy",
    ("node.k8s.io/v1", "RuntimeClass"): "node_v1.RuntimeClass",
    ("policy/v1", "Eviction"): "policy_v1.Eviction",
    ("policy/v1", "PodDisruptionBudget"): "policy_v1.PodDisruptionBudget",
    ("policy/v1beta1", "Eviction"): "policy_v1.Eviction",
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): "rbac_v1.ClusterRole",
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): "rbac_v1.ClusterRoleBinding",
    ("rbac.authorization.k8s.io/v1", "Role"): "rbac_v1.Role",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "rbac_v1.RoleBinding",
    ("scheduling.k8s.io/v1", "PriorityClass"): "scheduling_v1.PriorityClass",
    ("storage.k8s.io/v1", "StorageClass"): "storage_v1.StorageClass",
}

_OBJECT = "metadata=1 spec=2 status=3"
_CROSS_REFERENCE = "kind=1 name=2 apiVersion=3"
_METRICS = "type=1 object=2 pods=3 resource=4 external=5 containerResource=7"

_NUMBERS: dict[str, str] = {
    # ------------------------------------------------------------------ meta
    "meta_v1.ObjectMeta": (
        "name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation=7 "
        "creationTimestamp=8 deletionTimestamp=9 deletionGracePeriodSeconds=10* labels=11 "
        "annotations=12 ownerReferences=13 finalizers=14 managedFields=17"
    ),
    "meta_v1.OwnerReference": (
        "kind=1 name=3 uid=4 apiVersion=5 controller=6* blockOwnerDeletion=7*"
    ),
    "meta_v1.ManagedFieldsEntry": (
        "manager=1 operation=2 apiVersion=3 time=4 fieldsType=6 fieldsV1=7 subresource=8"
    ),
    "meta_v1.LabelSelector": "matchLabels=1 matchExpressions=2",
    "meta_v1.LabelSelectorRequirement": REQUIREMENT,
    "meta_v1.DeleteOptions": (
        "gracePeriodSeconds=1* preconditions=2 orphanDependents=3* propagationPolicy=4 dryRun=5 "
        "ignoreStoreReadErrorWithClusterBreakingPotential=6*"
    ),
    "meta_v1.Preconditions": "uid=1 resourceVersion=2",
    "meta_v1.Condition": (
        "type=1 status=2 observedGeneration=3 lastTransitionTime=4 reason=5 message=6"
    ),
    # ------------------------------------------------------------ small kinds
    "core_v1.Binding": "metadata=1 target=2",
    "core_v1.ConfigMap": "metadata=1 data=2 binaryData=3! immutable=4*",
    "core_v1.Secret": "metadata=1 data=2! type=3 stringData=4 immutable=5*",
    "core_v1.ServiceAccount": (
        "metadata=1 secrets=2 imagePullSecrets=3 automountServiceAccountToken=4*"
    ),
    "core_v1.Namespace": _OBJECT,
    "core_v1.NamespaceSpec": "finalizers=1",
    "core_v1.NamespaceStatus": "phase=1 conditions=2",
    "core_v1.NamespaceCondition": "type=1 status=2 lastTransitionTime=4 reason=5 message=6",
    "core_v1.LocalObjectReference": "name=1",
    "core_v1.ObjectReference": (
        "kind=1 namespace=2 name=3 uid=4 apiVersion=5 resourceVersion=6 fieldPath=7"
    ),
    "coordination_v1.Lease": "metadata=1 spec=2",
    "coordination_v1.LeaseSpec": (
        "holderIdentity=1 leaseDurationSeconds=2* acquireTime=3~ renewTime=4~ leaseTransitions=5* "
        "strategy=6 preferredHolder=7"
    ),
    # ----------------------------------------------------------------- events
    "core_v1.Event": (
        "metadata=1 involvedObject=2 reason=3 message=4 source=5 firstTimestamp=6 lastTimestamp=7 "
        "count=8 type=9 eventTime=10~ series=11 action=12 related=13 reportingComponent=14 "
        "reportingInstance=15"
    ),
    "core_v1.EventSeries": "count=1 lastObservedTime=2~",
    "core_v1.EventSource": "component=1 host=2",
    "events_v1.Event": (
        "metadata=1 eventTime=2~ series=3 reportingController=4 reportingInstance=5 action=6 "
        "reason=7 regarding=8 related=9 note=10 type=11 deprecatedSource=12 "
        "deprecatedFirstTimestamp=13 deprecatedLastTimestamp=14 deprecatedCount=15"
    ),
    "events_v1.EventSeries": "count=1 lastObservedTime=2~",
    # --------------------------------------------------------------- services
    "core_v1.LimitRange": "metadata=1 spec=2",
    "core_v1.LimitRangeSpec": "limits=1",
    "core_v1.LimitRangeItem": (
        "type=1 max=2 min=3 default=4 defaultRequest=5 maxLimitRequestRatio=6"
    ),
    "core_v1.ResourceQuota": _OBJECT,
    "core_v1.ResourceQuotaSpec": "hard=1 scopes=2 scopeSelector=3",
    "core_v1.ResourceQuotaStatus": "hard=1 used=2",
    "core_v1.ScopeSelector": "matchExpressions=1",
    "core_v1.ScopedResourceSelectorRequirement": "scopeName=1 operator=2 values=3",
    "core_v1.Service": _OBJECT,
    "core_v1.ServiceSpec": (
        "ports=1 selector=2 clusterIP=3 type=4 externalIPs=5 sessionAffinity=7 loadBalancerIP=8 "
        "loadBalancerSourceRanges=9 externalName=10 externalTrafficPolicy=11 "
        "healthCheckNodePort=12 publishNotReadyAddresses=13 sessionAffinityConfig=14 "
        "ipFamilyPolicy=17 clusterIPs=18 ipFamilies=19 allocateLoadBalancerNodePorts=20* "
        "loadBalancerClass=21 internalTrafficPolicy=22 trafficDistribution=23"
    ),
    "core_v1.ServicePort": "name=1 protocol=2 port=3 targetPort=4 nodePort=5 appProtocol=6",
    "core_v1.SessionAffinityConfig": "clientIP=1",
    "core_v1.ClientIPConfig": "timeoutSeconds=1*",
    "core_v1.ServiceStatus": "loadBalancer=1 conditions=2",
    "core_v1.LoadBalancerStatus": "ingress=1",
    "core_v1.LoadBalancerIngress": "ip=1 hostname=2 ipMode=3 ports=4",
    "core_v1.PortStatus": "port=1 protocol=2 error=3",
    "core_v1.Endpoints": "metadata=1 subsets=2",
    "core_v1.EndpointSubset": "addresses=1 notReadyAddresses=2 ports=3",
    "core_v1.EndpointAddress": "ip=1 targetRef=2 hostname=3 nodeName=4",
    "core_v1.EndpointPort": "name=1 port=2 protocol=3 appProtocol=4",
    "discovery_v1.EndpointSlice": "metadata=1 endpoints=2 ports=3 addressType=4",
    "discovery_v1.Endpoint": (
        "addresses=1 conditions=2 hostname=3 targetRef=4 deprecatedTopology=5 nodeName=6 zone=7 "
        "hints=8"
    ),
    "discovery_v1.EndpointConditions": "ready=1* serving=2* terminating=3*",
    "discovery_v1.EndpointHints": "forZones=1 forNodes=2",
    "discovery_v1.ForZone": "name=1",
    "discovery_v1.ForNode": "name=1",
    "discovery_v1.EndpointPort": "name=1* protocol=2* port=3* appProtocol=4*",
    "networking_v1.NetworkPolicy": "metadata=1 spec=2",
    "networking_v1.NetworkPolicySpec": "podSelector=1 ingress=2 egress=3 policyTypes=4",
    "networking_v1.NetworkPolicyIngressRule": "ports=1 from=2",
    "networking_v1.NetworkPolicyEgressRule": "ports=1 to=2",
    "networking_v1.NetworkPolicyPeer": "podSelector=1 namespaceSelector=2 ipBlock=3",
    "networking_v1.NetworkPolicyPort": "protocol=1* port=2* endPort=3*",
    "networking_v1.IPBlock": "cidr=1 except=2",
    # ------------------------------------------------------------- disruption
    "policy_v1.Eviction": "metadata=1 deleteOptions=2",
    "policy_v1.PodDisruptionBudget": _OBJECT,
    "policy_v1.PodDisruptionBudgetSpec": (
        "minAvailable=1* selector=2 maxUnavailable=3* unhealthyPodEvictionPolicy=4"
    ),
    "policy_v1.PodDisruptionBudgetStatus": (
        "observedGeneration=1 disruptedPods=2 disruptionsAllowed=3 currentHealthy=4 "
        "desiredHealthy=5 expectedPods=6 conditions=7"
    ),
    # ---------------------------------------------------------------- reviews
    # Requests bear their status too, with nothing in it.
    "authentication_v1.SelfSubjectReview": "metadata=1 status=2",
    "authentication_v1.SelfSubjectReviewStatus": "userInfo=1",
    "authentication_v1.UserInfo": "username=1 uid=2 groups=3 extra=4@",
    "authentication_v1.TokenReview": _OBJECT,
    "authentication_v1.TokenReviewSpec": "token=1 audiences=2",
    "authentication_v1.TokenReviewStatus": "authenticated=1 user=2 error=3 audiences=4",
    "authentication_v1.TokenRequest": _OBJECT,
    "authentication_v1.TokenRequestStatus": "token=1 expirationTimestamp=2",
    "authentication_v1.TokenRequestSpec": "audiences=1 boundObjectRef=3 expirationSeconds=4*",
    "authentication_v1.BoundObjectReference": "kind=1 apiVersion=2 name=3 uid=4",
    # ------------------------------------------------------------ autoscalers
    "autoscaling_v1.HorizontalPodAutoscaler": _OBJECT,
    "autoscaling_v1.HorizontalPodAutoscalerSpec": (
        "scaleTargetRef=1 minReplicas=2* maxReplicas=3 targetCPUUtilizationPercentage=4*"
    ),
    "autoscaling_v1.HorizontalPodAutoscalerStatus": (
        "observedGeneration=1* lastScaleTime=2 currentReplicas=3 desiredReplicas=4 "
        "currentCPUUtilizationPercentage=5*"
    ),
    "autoscaling_v1.Scale": _OBJECT,
    "autoscaling_v1.ScaleSpec": "replicas=1",
    "autoscaling_v1.ScaleStatus": "replicas=1 selector=2",
    "autoscaling_v1.CrossVersionObjectReference": _CROSS_REFERENCE,
    "autoscaling_v2.HorizontalPodAutoscaler": _OBJECT,
    "autoscaling_v2.HorizontalPodAutoscalerSpec": (
        "scaleTargetRef=1 minReplicas=2* maxReplicas=3 metrics=4 behavior=5"
    ),
    "autoscaling_v2.HorizontalPodAutoscalerStatus": (
        "observedGeneration=1* lastScaleTime=2 currentReplicas=3 desiredReplicas=4 "
        "currentMetrics=5 conditions=6"
    ),
    "autoscaling_v2.HorizontalPodAutoscalerCondition": (
        "type=1 status=2 lastTransitionTime=3 reason=4 message=5 observedGeneration=6"
    ),
    "autoscaling_v2.CrossVersionObjectReference": _CROSS_REFERENCE,
    "autoscaling_v2.HorizontalPodAutoscalerBehavior": "scaleUp=1 scaleDown=2",
    "autoscaling_v2.HPAScalingRules": (
        "selectPolicy=1* policies=2 stabilizationWindowSeconds=3* tolerance=4*"
    ),
    "autoscaling_v2.HPAScalingPolicy": "type=1 value=2 periodSeconds=3",
    "autoscaling_v2.MetricSpec": _METRICS,
    "autoscaling_v2.MetricStatus": _METRICS,
    "autoscaling_v2.MetricIdentifier": "name=1 selector=2",
    "autoscaling_v2.MetricTarget": "type=1 value=2* averageValue=3* averageUtilization=4*",
    "autoscaling_v2.MetricValueStatus": "value=1* averageValue=2* averageUtilization=3*",
    "autoscaling_v2.ObjectMetricSource": "describedObject=1 target=2 metric=3",
    "autoscaling_v2.ObjectMetricStatus": "metric=1 current=2 describedObject=3",
    "autoscaling_v2.PodsMetricSource": "metric=1 target=2",
    "autoscaling_v2.PodsMetricStatus": "metric=1 current=2",
    "autoscaling_v2.ResourceMetricSource": "name=1 target=2",
    "autoscaling_v2.ResourceMetricStatus": "name=1 current=2",
    "autoscaling_v2.ContainerResourceMetricSource": "name=1 target=2 container=3",
    "autoscaling_v2.ContainerResourceMetricStatus": "name=1 current=2 container=3",
    "autoscaling_v2.ExternalMetricSource": "metric=1 target=2",
    "autoscaling_v2.ExternalMetricStatus": "metric=1 current=2",
    # ------------------------------------------------------------------ nodes
    "core_v1.Node": _OBJECT,
    "core_v1.NodeSpec": "podCIDR=1 externalID=2 providerID=3 unschedulable=4 taints=5 podCIDRs=7",
    "core_v1.Taint": "key=1 value=2 effect=3 timeAdded=4",
    "core_v1.NodeStatus": (
        "capacity=1 allocatable=2 phase=3 conditions=4 addresses=5 daemonEndpoints=6 nodeInfo=7 "
        "images=8 volumesInUse=9 volumesAttached=10"
    ),
    "core_v1.NodeCondition": (
        "type=1 status=2 lastHeartbeatTime=3 lastTransitionTime=4 reason=5 message=6"
    ),
    "core_v1.NodeAddress": "type=1 address=2",
    "core_v1.NodeDaemonEndpoints": "kubeletEndpoint=1",
    "core_v1.DaemonEndpoint": "Port=1",
    "core_v1.NodeSystemInfo": (
        "machineID=1 systemUUID=2 bootID=3 kernelVersion=4 osImage=5 containerRuntimeVersion=6 "
        "kubeletVersion=7 kubeProxyVersion=8 operatingSystem=9 architecture=10"
    ),
    "core_v1.ContainerImage": "names=1 sizeBytes=2",
    "core_v1.AttachedVolume": "name=1 devicePath=2",
}
NUMBERS: Mapping[str, str] = {
    **_NUMBERS,
    **ACCESS_NUMBERS,
    **POD_NUMBERS,
    **REVIEW_NUMBERS,
    **STORAGE_NUMBERS,
    **WORKLOAD_NUMBERS,
}
