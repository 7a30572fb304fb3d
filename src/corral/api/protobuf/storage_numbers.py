"""Numbers of the fields of volumes, claims and classes, written as those in ``numbers``."""

from collections.abc import Mapping

_REFERENCE = "name=1 namespace=2"

STORAGE_NUMBERS: Mapping[str, str] = {
    "core_v1.PersistentVolumeClaim": "metadata=1 spec=2 status=3",
    "core_v1.PersistentVolumeClaimSpec": (
        "accessModes=1 resources=2 volumeName=3 selector=4 storageClassName=5* volumeMode=6 "
        "dataSource=7 dataSourceRef=8 volumeAttributesClassName=9"
    ),
    "core_v1.VolumeResourceRequirements": "limits=1 requests=2",
    "core_v1.TypedObjectReference": "apiGroup=1* kind=2 name=3 namespace=4",
    "core_v1.PersistentVolumeClaimStatus": (
        "phase=1 accessModes=2 capacity=3 conditions=4 allocatedResources=5 "
        "allocatedResourceStatuses=7 currentVolumeAttributesClassName=8 modifyVolumeStatus=9"
    ),
    "core_v1.PersistentVolumeClaimCondition": (
        "type=1 status=2 lastProbeTime=3 lastTransitionTime=4 reason=5 message=6"
    ),
    "core_v1.ModifyVolumeStatus": "targetVolumeAttributesClassName=1 status=2",
    "core_v1.PersistentVolume": "metadata=1 spec=2 status=3",
    "core_v1.PersistentVolumeSpec": (
        "capacity=1 +core_v1.PersistentVolumeSource=2 accessModes=3 claimRef=4 "
        "persistentVolumeReclaimPolicy=5 storageClassName=6 mountOptions=7 volumeMode=8 "
        "nodeAffinity=9 volumeAttributesClassName=10"
    ),
    "core_v1.PersistentVolumeSource": "hostPath=3 nfs=5 local=20 csi=22",
    "core_v1.LocalVolumeSource": "path=1 fsType=2",
    "core_v1.CSIPersistentVolumeSource": (
        "driver=1 volumeHandle=2 readOnly=3 fsType=4 volumeAttributes=5 "
        "controllerPublishSecretRef=6 nodeStageSecretRef=7 nodePublishSecretRef=8 "
        "controllerExpandSecretRef=9 nodeExpandSecretRef=10"
    ),
    "core_v1.SecretReference": _REFERENCE,
    "core_v1.VolumeNodeAffinity": "required=1",
    "core_v1.PersistentVolumeStatus": "phase=1 message=2 reason=3 lastPhaseTransitionTime=4",
    "storage_v1.StorageClass": (
        "metadata=1 provisioner=2 parameters=3 reclaimPolicy=4 mountOptions=5 "
        "allowVolumeExpansion=6* volumeBindingMode=7 allowedTopologies=8"
    ),
    "core_v1.TopologySelectorTerm": "matchLabelExpressions=1",
    "core_v1.TopologySelectorLabelRequirement": "key=1 values=2",
}
