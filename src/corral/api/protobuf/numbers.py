"""Numbers of fields: facts of Kubernetes' generated.proto files, the part of them that is in use.

Types are named by their module and class in lightkube.models, where the types of their fields
come from.  What a line says: ``field=number``, and after the number

    *   zero and false are told too (a pointer in Go), and not left out as unset
    ~   a MicroTime, told to the microsecond
    !   a map to bytes, which JSON holds in base64

``+Name=number`` is a message whose fields stand in the object itself in JSON.

To read one more kind, name it in KINDS and its types in NUMBERS.
"""

from collections.abc import Mapping

KINDS: Mapping[tuple[str, str], str] = {
    ("v1", "Binding"): "core_v1.Binding",
    ("v1", "ConfigMap"): "core_v1.ConfigMap",
    ("v1", "DeleteOptions"): "meta_v1.DeleteOptions",
    ("v1", "Endpoints"): "core_v1.Endpoints",
    ("v1", "Event"): "core_v1.Event",
    ("v1", "Namespace"): "core_v1.Namespace",
    ("v1", "Node"): "core_v1.Node",
    ("v1", "Pod"): "core_v1.Pod",
    ("v1", "Secret"): "core_v1.Secret",
    ("v1", "Service"): "core_v1.Service",
    ("v1", "ServiceAccount"): "core_v1.ServiceAccount",
    ("authentication.k8s.io/v1", "SelfSubjectReview"): "authentication_v1.SelfSubjectReview",
    ("authentication.k8s.io/v1", "TokenRequest"): "authentication_v1.TokenRequest",
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): (
        "authorization_v1.SelfSubjectAccessReview"
    ),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): (
        "authorization_v1.SelfSubjectRulesReview"
    ),
    ("coordination.k8s.io/v1", "Lease"): "coordination_v1.Lease",
    ("discovery.k8s.io/v1", "EndpointSlice"): "discovery_v1.EndpointSlice",
    ("events.k8s.io/v1", "Event"): "events_v1.Event",
    ("meta.k8s.io/v1", "DeleteOptions"): "meta_v1.DeleteOptions",
    ("networking.k8s.io/v1", "NetworkPolicy"): "networking_v1.NetworkPolicy",
}

_OBJECT = "metadata=1 spec=2 status=3"
_SELECTED = "+core_v1.LocalObjectReference=1 key=2 optional=3*"
_AFFINITY = (
    "requiredDuringSchedulingIgnoredDuringExecution=1 "
    "preferredDuringSchedulingIgnoredDuringExecution=2"
)
_HANDLER = "exec=1 httpGet=2 tcpSocket=3"
_REQUIREMENT = "key=1 operator=2 values=3"

NUMBERS: Mapping[str, str] = {
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
    "meta_v1.LabelSelectorRequirement": _REQUIREMENT,
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
    # ---------------------------------------------------------------- reviews
    # Requests bear their status too, with nothing in it.
    "authentication_v1.SelfSubjectReview": "metadata=1 status=2",
    "authentication_v1.SelfSubjectReviewStatus": "userInfo=1",
    "authentication_v1.UserInfo": "username=1 uid=2 groups=3",
    "authentication_v1.TokenRequest": _OBJECT,
    "authentication_v1.TokenRequestStatus": "token=1 expirationTimestamp=2",
    "authentication_v1.TokenRequestSpec": "audiences=1 boundObjectRef=3 expirationSeconds=4*",
    "authentication_v1.BoundObjectReference": "kind=1 apiVersion=2 name=3 uid=4",
    "authorization_v1.SelfSubjectAccessReview": _OBJECT,
    "authorization_v1.SubjectAccessReviewStatus": "allowed=1 reason=2 evaluationError=3 denied=4",
    "authorization_v1.SelfSubjectAccessReviewSpec": "resourceAttributes=1 nonResourceAttributes=2",
    "authorization_v1.ResourceAttributes": (
        "namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7"
    ),
    "authorization_v1.NonResourceAttributes": "path=1 verb=2",
    "authorization_v1.SelfSubjectRulesReview": _OBJECT,
    "authorization_v1.SubjectRulesReviewStatus": (
        "resourceRules=1 nonResourceRules=2 incomplete=3 evaluationError=4"
    ),
    "authorization_v1.ResourceRule": "verbs=1 apiGroups=2 resources=3 resourceNames=4",
    "authorization_v1.NonResourceRule": "verbs=1 nonResourceURLs=2",
    "authorization_v1.SelfSubjectRulesReviewSpec": "namespace=1",
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
    # ------------------------------------------------------------------- pods
    "core_v1.Pod": _OBJECT,
    "core_v1.PodSpec": (
        "volumes=1 containers=2 restartPolicy=3 terminationGracePeriodSeconds=4* "
        "activeDeadlineSeconds=5* dnsPolicy=6 nodeSelector=7 serviceAccountName=8 "
        "serviceAccount=9 nodeName=10 hostNetwork=11 hostPID=12 hostIPC=13 securityContext=14 "
        "imagePullSecrets=15 hostname=16 subdomain=17 affinity=18 schedulerName=19 "
        "initContainers=20 automountServiceAccountToken=21* tolerations=22 hostAliases=23 "
        "priorityClassName=24 priority=25* dnsConfig=26 shareProcessNamespace=27* "
        "readinessGates=28 runtimeClassName=29 enableServiceLinks=30* preemptionPolicy=31 "
        "overhead=32 topologySpreadConstraints=33 ephemeralContainers=34 setHostnameAsFQDN=35* "
        "os=36 hostUsers=37* schedulingGates=38 resources=40 hostnameOverride=41"
    ),
    "core_v1.Container": (
        "name=1 image=2 command=3 args=4 workingDir=5 ports=6 env=7 resources=8 volumeMounts=9 "
        "livenessProbe=10 readinessProbe=11 lifecycle=12 terminationMessagePath=13 "
        "imagePullPolicy=14 securityContext=15 stdin=16 stdinOnce=17 tty=18 envFrom=19 "
        "terminationMessagePolicy=20 volumeDevices=21 startupProbe=22 resizePolicy=23 "
        "restartPolicy=24"
    ),
    "core_v1.EphemeralContainer": "+core_v1.Container=1 targetContainerName=2",
    "core_v1.ContainerPort": "name=1 hostPort=2 containerPort=3 protocol=4 hostIP=5",
    "core_v1.ContainerResizePolicy": "resourceName=1 restartPolicy=2",
    "core_v1.ResourceRequirements": "limits=1 requests=2 claims=3",
    "core_v1.ResourceClaim": "name=1 request=2",
    "core_v1.VolumeMount": (
        "name=1 readOnly=2 mountPath=3 subPath=4 mountPropagation=5 subPathExpr=6 "
        "recursiveReadOnly=7"
    ),
    "core_v1.VolumeDevice": "name=1 devicePath=2",
    "core_v1.EnvVar": "name=1 value=2 valueFrom=3",
    "core_v1.EnvVarSource": "fieldRef=1 resourceFieldRef=2 configMapKeyRef=3 secretKeyRef=4",
    "core_v1.EnvFromSource": "prefix=1 configMapRef=2 secretRef=3",
    "core_v1.ConfigMapEnvSource": "+core_v1.LocalObjectReference=1 optional=2*",
    "core_v1.SecretEnvSource": "+core_v1.LocalObjectReference=1 optional=2*",
    "core_v1.ConfigMapKeySelector": _SELECTED,
    "core_v1.SecretKeySelector": _SELECTED,
    "core_v1.ObjectFieldSelector": "apiVersion=1 fieldPath=2",
    "core_v1.ResourceFieldSelector": "containerName=1 resource=2 divisor=3",
    "core_v1.Probe": (
        "+core_v1.ProbeHandler=1 initialDelaySeconds=2 timeoutSeconds=3 periodSeconds=4 "
        "successThreshold=5 failureThreshold=6 terminationGracePeriodSeconds=7*"
    ),
    "core_v1.ProbeHandler": f"{_HANDLER} grpc=4",
    "core_v1.Lifecycle": "postStart=1 preStop=2 stopSignal=3",
    "core_v1.LifecycleHandler": f"{_HANDLER} sleep=4",
    "core_v1.ExecAction": "command=1",
    "core_v1.HTTPGetAction": "path=1 port=2 host=3 scheme=4 httpHeaders=5",
    "core_v1.HTTPHeader": "name=1 value=2",
    "core_v1.TCPSocketAction": "port=1 host=2",
    "core_v1.GRPCAction": "port=1 service=2",
    "core_v1.SleepAction": "seconds=1",
    "core_v1.SecurityContext": (
        "capabilities=1 privileged=2* seLinuxOptions=3 runAsUser=4* runAsNonRoot=5* "
        "readOnlyRootFilesystem=6* allowPrivilegeEscalation=7* runAsGroup=8* procMount=9 "
        "seccompProfile=11 appArmorProfile=12"
    ),
    "core_v1.Capabilities": "add=1 drop=2",
    "core_v1.SELinuxOptions": "user=1 role=2 type=3 level=4",
    "core_v1.SeccompProfile": "type=1 localhostProfile=2",
    "core_v1.AppArmorProfile": "type=1 localhostProfile=2",
    "core_v1.PodSecurityContext": (
        "seLinuxOptions=1 runAsUser=2* runAsNonRoot=3* supplementalGroups=4 fsGroup=5* "
        "runAsGroup=6* sysctls=7 fsGroupChangePolicy=9 seccompProfile=10 appArmorProfile=11 "
        "supplementalGroupsPolicy=12 seLinuxChangePolicy=13"
    ),
    "core_v1.Sysctl": "name=1 value=2",
    "core_v1.Toleration": "key=1 operator=2 value=3 effect=4 tolerationSeconds=5*",
    "core_v1.HostAlias": "ip=1 hostnames=2",
    "core_v1.PodDNSConfig": "nameservers=1 searches=2 options=3",
    "core_v1.PodDNSConfigOption": "name=1 value=2",
    "core_v1.PodReadinessGate": "conditionType=1",
    "core_v1.PodSchedulingGate": "name=1",
    "core_v1.PodOS": "name=1",
    "core_v1.TopologySpreadConstraint": (
        "maxSkew=1 topologyKey=2 whenUnsatisfiable=3 labelSelector=4 minDomains=5* "
        "nodeAffinityPolicy=6 nodeTaintsPolicy=7 matchLabelKeys=8"
    ),
    "core_v1.Affinity": "nodeAffinity=1 podAffinity=2 podAntiAffinity=3",
    "core_v1.NodeAffinity": _AFFINITY,
    "core_v1.PodAffinity": _AFFINITY,
    "core_v1.PodAntiAffinity": _AFFINITY,
    "core_v1.NodeSelector": "nodeSelectorTerms=1",
    "core_v1.NodeSelectorTerm": "matchExpressions=1 matchFields=2",
    "core_v1.NodeSelectorRequirement": _REQUIREMENT,
    "core_v1.PreferredSchedulingTerm": "weight=1 preference=2",
    "core_v1.WeightedPodAffinityTerm": "weight=1 podAffinityTerm=2",
    "core_v1.PodAffinityTerm": (
        "labelSelector=1 namespaces=2 topologyKey=3 namespaceSelector=4 matchLabelKeys=5 "
        "mismatchLabelKeys=6"
    ),
    # ---------------------------------------------------------------- volumes
    "core_v1.Volume": "name=1 +core_v1.VolumeSource=2",
    "core_v1.VolumeSource": (
        "hostPath=1 emptyDir=2 secret=6 nfs=7 persistentVolumeClaim=10 downwardAPI=16 "
        "configMap=19 projected=26"
    ),
    "core_v1.HostPathVolumeSource": "path=1 type=2",
    "core_v1.EmptyDirVolumeSource": "medium=1 sizeLimit=2",
    "core_v1.SecretVolumeSource": "secretName=1 items=2 defaultMode=3* optional=4*",
    "core_v1.NFSVolumeSource": "server=1 path=2 readOnly=3",
    "core_v1.PersistentVolumeClaimVolumeSource": "claimName=1 readOnly=2",
    "core_v1.DownwardAPIVolumeSource": "items=1 defaultMode=2*",
    "core_v1.DownwardAPIVolumeFile": "path=1 fieldRef=2 resourceFieldRef=3 mode=4*",
    "core_v1.ConfigMapVolumeSource": (
        "+core_v1.LocalObjectReference=1 items=2 defaultMode=3* optional=4*"
    ),
    "core_v1.KeyToPath": "key=1 path=2 mode=3*",
    "core_v1.ProjectedVolumeSource": "sources=1 defaultMode=2*",
    "core_v1.VolumeProjection": "secret=1 downwardAPI=2 configMap=3 serviceAccountToken=4",
    "core_v1.SecretProjection": "+core_v1.LocalObjectReference=1 items=2 optional=4*",
    "core_v1.ConfigMapProjection": "+core_v1.LocalObjectReference=1 items=2 optional=4*",
    "core_v1.DownwardAPIProjection": "items=1",
    "core_v1.ServiceAccountTokenProjection": "audience=1 expirationSeconds=2* path=3",
    # ----------------------------------------------------------- pods' status
    "core_v1.PodStatus": (
        "phase=1 conditions=2 message=3 reason=4 hostIP=5 podIP=6 startTime=7 "
        "containerStatuses=8 qosClass=9 initContainerStatuses=10 nominatedNodeName=11 podIPs=12 "
        "ephemeralContainerStatuses=13 resize=14 hostIPs=16 observedGeneration=17"
    ),
    "core_v1.PodCondition": (
        "type=1 status=2 lastProbeTime=3 lastTransitionTime=4 reason=5 message=6 "
        "observedGeneration=7"
    ),
    "core_v1.PodIP": "ip=1",
    "core_v1.HostIP": "ip=1",
    "core_v1.ContainerStatus": (
        "name=1 state=2 lastState=3 ready=4 restartCount=5 image=6 imageID=7 containerID=8 "
        "started=9* allocatedResources=10 resources=11 stopSignal=15"
    ),
    "core_v1.ContainerState": "waiting=1 running=2 terminated=3",
    "core_v1.ContainerStateWaiting": "reason=1 message=2",
    "core_v1.ContainerStateRunning": "startedAt=1",
    "core_v1.ContainerStateTerminated": (
        "exitCode=1 signal=2 reason=3 message=4 startedAt=5 finishedAt=6 containerID=7"
    ),
}
