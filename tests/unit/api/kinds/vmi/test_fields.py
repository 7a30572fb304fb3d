"""The names on the wire are KubeVirt's, all of them and no others.

The table is the list of fields of KubeVirt's v1 VirtualMachineInstance (api/core/v1), path by path.
Types that are Kubernetes' own (affinity, tolerations, probes' actions) end at their field.
"""

import typing
from collections.abc import Iterator

import msgspec
import pytest

from corral.api.kinds.kubevirt.replicaset import VirtualMachineInstanceReplicaSet
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.api.object import ObjectMeta, Struct

FIELDS = """
spec accessCredentials affinity architecture dnsConfig dnsPolicy domain evictionStrategy hostname
    livenessProbe networks nodeSelector priorityClassName readinessProbe resourceClaims
    schedulerName serviceAccountName startStrategy subdomain terminationGracePeriodSeconds
    tolerations topologySpreadConstraints utilityVolumes volumes
spec.accessCredentials sshPublicKey userPassword
spec.accessCredentials.sshPublicKey propagationMethod source
spec.accessCredentials.sshPublicKey.propagationMethod configDrive noCloud qemuGuestAgent
spec.accessCredentials.sshPublicKey.propagationMethod.qemuGuestAgent users
spec.accessCredentials.sshPublicKey.source secret
spec.accessCredentials.sshPublicKey.source.secret secretName
spec.accessCredentials.userPassword propagationMethod source
spec.accessCredentials.userPassword.propagationMethod qemuGuestAgent
spec.accessCredentials.userPassword.source secret
spec.accessCredentials.userPassword.source.secret secretName
spec.domain chassis clock cpu devices features firmware ioThreads ioThreadsPolicy launchSecurity
    machine memory rebootPolicy resources
spec.domain.chassis asset manufacturer serial sku version
spec.domain.clock timer timezone utc
spec.domain.clock.timer hpet hyperv kvm pit rtc
spec.domain.clock.timer.hpet present tickPolicy
spec.domain.clock.timer.hyperv present
spec.domain.clock.timer.kvm present
spec.domain.clock.timer.pit present tickPolicy
spec.domain.clock.timer.rtc present tickPolicy track
spec.domain.clock.utc offsetSeconds
spec.domain.cpu cores dedicatedCpuPlacement features isolateEmulatorThread maxSockets model numa
    realtime sockets threads
spec.domain.cpu.features name policy
spec.domain.cpu.numa guestMappingPassthrough
spec.domain.cpu.realtime mask
spec.domain.devices autoattachGraphicsDevice autoattachInputDevice autoattachMemBalloon
    autoattachPodInterface autoattachSerialConsole autoattachVSOCK blockMultiQueue
    clientPassthrough disableHotplug disks downwardMetrics filesystems gpus hostDevices inputs
    interfaces logSerialConsole networkInterfaceMultiqueue panicDevices rng sound tpm
    useVirtioTransitional video watchdog
spec.domain.devices.disks blockSize bootOrder cache cdrom changedBlockTracking dedicatedIOThread
    disk errorPolicy io lun name serial shareable tag
spec.domain.devices.disks.blockSize custom matchVolume
spec.domain.devices.disks.blockSize.custom discardGranularity logical physical
spec.domain.devices.disks.blockSize.matchVolume enabled
spec.domain.devices.disks.cdrom bus readonly tray
spec.domain.devices.disks.disk bus pciAddress readonly
spec.domain.devices.disks.lun bus readonly reservation
spec.domain.devices.filesystems name virtiofs
spec.domain.devices.gpus claimName deviceName name requestName tag virtualGPUOptions
spec.domain.devices.gpus.virtualGPUOptions display
spec.domain.devices.gpus.virtualGPUOptions.display enabled ramFB
spec.domain.devices.gpus.virtualGPUOptions.display.ramFB enabled
spec.domain.devices.hostDevices claimName deviceName name requestName tag
spec.domain.devices.inputs bus name type
spec.domain.devices.interfaces acpiIndex binding bootOrder bridge dhcpOptions macAddress macvtap
    masquerade model name passt passtBinding pciAddress ports slirp sriov state tag
spec.domain.devices.interfaces.binding name
spec.domain.devices.interfaces.dhcpOptions bootFileName ntpServers privateOptions tftpServerName
spec.domain.devices.interfaces.dhcpOptions.privateOptions option value
spec.domain.devices.interfaces.ports name port protocol
spec.domain.devices.panicDevices model
spec.domain.devices.sound model name
spec.domain.devices.tpm enabled persistent
spec.domain.devices.video type
spec.domain.devices.watchdog diag288 i6300esb name
spec.domain.devices.watchdog.diag288 action
spec.domain.devices.watchdog.i6300esb action
spec.domain.features acpi apic hyperv hypervPassthrough kvm pvspinlock smm
spec.domain.features.acpi enabled
spec.domain.features.apic enabled endOfInterrupt
spec.domain.features.hyperv evmcs frequencies ipi reenlightenment relaxed reset runtime spinlocks
    synic synictimer tlbflush vapic vendorid vpindex
spec.domain.features.hyperv.evmcs enabled
spec.domain.features.hyperv.frequencies enabled
spec.domain.features.hyperv.ipi enabled
spec.domain.features.hyperv.reenlightenment enabled
spec.domain.features.hyperv.relaxed enabled
spec.domain.features.hyperv.reset enabled
spec.domain.features.hyperv.runtime enabled
spec.domain.features.hyperv.spinlocks enabled spinlocks
spec.domain.features.hyperv.synic enabled
spec.domain.features.hyperv.synictimer direct enabled
spec.domain.features.hyperv.synictimer.direct enabled
spec.domain.features.hyperv.tlbflush direct enabled extended
spec.domain.features.hyperv.tlbflush.direct enabled
spec.domain.features.hyperv.tlbflush.extended enabled
spec.domain.features.hyperv.vapic enabled
spec.domain.features.hyperv.vendorid enabled vendorid
spec.domain.features.hyperv.vpindex enabled
spec.domain.features.hypervPassthrough enabled
spec.domain.features.kvm hidden
spec.domain.features.pvspinlock enabled
spec.domain.features.smm enabled
spec.domain.firmware acpi bootloader kernelBoot serial uuid
spec.domain.firmware.acpi msdmNameRef slicNameRef
spec.domain.firmware.bootloader bios efi
spec.domain.firmware.bootloader.bios useSerial
spec.domain.firmware.bootloader.efi persistent secureBoot
spec.domain.firmware.kernelBoot container kernelArgs
spec.domain.firmware.kernelBoot.container image imagePullPolicy imagePullSecret initrdPath
    kernelPath
spec.domain.ioThreads supplementalPoolThreadCount
spec.domain.launchSecurity sev snp tdx
spec.domain.launchSecurity.sev attestation dhCert policy session
spec.domain.launchSecurity.sev.policy encryptedState
spec.domain.launchSecurity.snp authorKey cbitpos idAuth idBlock kernelHashes policy
    reducedPhysBits vcek
spec.domain.machine type
spec.domain.memory guest hugepages maxGuest reservedOverhead
spec.domain.memory.hugepages pageSize
spec.domain.memory.reservedOverhead addedOverhead memLock
spec.domain.resources limits overcommitGuestOverhead requests
spec.livenessProbe exec failureThreshold guestAgentPing httpGet initialDelaySeconds periodSeconds
    successThreshold tcpSocket timeoutSeconds
spec.networks multus name pod resourceClaim
spec.networks.multus default networkName
spec.networks.pod vmIPv6NetworkCIDR vmNetworkCIDR
spec.networks.resourceClaim claimName requestName
spec.readinessProbe exec failureThreshold guestAgentPing httpGet initialDelaySeconds periodSeconds
    successThreshold tcpSocket timeoutSeconds
spec.resourceClaims name resourceClaimName resourceClaimTemplateName
spec.utilityVolumes claimName name readOnly type
spec.volumes cloudInitConfigDrive cloudInitNoCloud configMap containerDisk containerPath
    dataVolume downwardAPI downwardMetrics emptyDisk ephemeral hostDisk memoryDump name
    persistentVolumeClaim secret serviceAccount sysprep
spec.volumes.cloudInitConfigDrive networkData networkDataBase64 networkDataSecretRef secretRef
    userData userDataBase64
spec.volumes.cloudInitConfigDrive.networkDataSecretRef name
spec.volumes.cloudInitConfigDrive.secretRef name
spec.volumes.cloudInitNoCloud networkData networkDataBase64 networkDataSecretRef secretRef
    userData userDataBase64
spec.volumes.cloudInitNoCloud.networkDataSecretRef name
spec.volumes.cloudInitNoCloud.secretRef name
spec.volumes.configMap name optional volumeLabel
spec.volumes.containerDisk image imagePullPolicy imagePullSecret path
spec.volumes.containerPath path readOnly
spec.volumes.dataVolume hotpluggable name
spec.volumes.downwardAPI fields volumeLabel
spec.volumes.emptyDisk capacity
spec.volumes.ephemeral persistentVolumeClaim
spec.volumes.ephemeral.persistentVolumeClaim claimName readOnly
spec.volumes.hostDisk capacity path shared type
spec.volumes.memoryDump claimName hotpluggable readOnly
spec.volumes.persistentVolumeClaim claimName hotpluggable readOnly
spec.volumes.secret optional secretName volumeLabel
spec.volumes.serviceAccount serviceAccountName
spec.volumes.sysprep configMap secret
spec.volumes.sysprep.configMap name
spec.volumes.sysprep.secret name
status VSOCKCID activePods changedBlockTracking conditions currentCPUTopology evacuationNodeName
    fsFreezeStatus guestOSInfo interfaces kernelBootStatus launcherContainerImageVersion machine
    memory migratedVolumes migrationMethod migrationState migrationTransport nodeName phase
    phaseTransitionTimestamps qosClass reason runtimeUser selinuxContext topologyHints
    virtualMachineRevisionName volumeStatus
status.changedBlockTracking backupStatus state
status.conditions lastProbeTime lastTransitionTime message reason status type
status.currentCPUTopology cores sockets threads
status.guestOSInfo id kernelRelease kernelVersion machine name prettyName version versionId
status.interfaces infoSource interfaceName ipAddress ipAddresses linkState mac name
    podInterfaceName queueCount
status.kernelBootStatus initrdInfo kernelInfo
status.kernelBootStatus.initrdInfo checksum
status.kernelBootStatus.kernelInfo checksum
status.machine type
status.memory guestAtBoot guestCurrent guestRequested
status.migratedVolumes destinationPVCInfo sourcePVCInfo volumeName
status.migratedVolumes.destinationPVCInfo accessModes capacity claimName filesystemOverhead
    preallocated requests volumeMode
status.migratedVolumes.sourcePVCInfo accessModes capacity claimName filesystemOverhead
    preallocated requests volumeMode
status.migrationState abortRequested abortStatus completed endTimestamp failed failureReason
    migrationConfiguration migrationNetworkType migrationPolicyName migrationUid mode sourceNode
    sourcePersistentStatePVCName sourcePod sourceState startTimestamp targetAttachmentPodUID
    targetCPUSet targetDirectMigrationNodePorts targetMemoryOverhead targetNode targetNodeAddress
    targetNodeDomainDetected targetNodeDomainReadyTimestamp targetNodeTopology
    targetPersistentStatePVCName targetPod targetState
status.migrationState.sourceState domainName domainNamespace migrationUID node nodeSelectors
    persistentStatePVCName pod selinuxContext syncAddress virtualMachineInstanceUID
status.migrationState.targetState attachmentPodUID cpuSet directMigrationNodePorts domainDetected
    domainName domainNamespace domainReadyTimestamp migrationUID node nodeAddress nodeTopology
    persistentStatePVCName pod selinuxContext syncAddress virtualMachineInstanceUID
status.phaseTransitionTimestamps phase phaseTransitionTimestamp
status.topologyHints tscFrequency
status.volumeStatus containerDiskVolume hotplugVolume memoryDumpVolume message name
    persistentVolumeClaimInfo phase reason size target
status.volumeStatus.containerDiskVolume checksum
status.volumeStatus.hotplugVolume attachPodName attachPodUID
status.volumeStatus.memoryDumpVolume claimName endTimestamp startTimestamp targetFileName
status.volumeStatus.persistentVolumeClaimInfo accessModes capacity claimName filesystemOverhead
    preallocated requests volumeMode
"""


def table() -> dict[str, list[str]]:
    lines: list[str] = []
    for line in FIELDS.strip().splitlines():
        if line.startswith(" "):
            lines[-1] += line
        else:
            lines.append(line)
    return {path: sorted(names) for path, *names in (line.split() for line in lines)}


def structs(kind: object) -> Iterator[type[Struct]]:
    """Our own Structs inside a type: ``X | None``, ``list[X]``."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
    for inner in typing.get_args(kind):
        yield from structs(inner)


def walk(view: type[Struct], path: str = "") -> Iterator[tuple[str, list[str]]]:
    fields = msgspec.structs.fields(view)
    names = sorted(field.encode_name for field in fields)
    if path and names:
        yield path, names
    for field in fields:
        for inner in structs(field.type):
            if inner is not ObjectMeta:
                here = f"{path}.{field.encode_name}".lstrip(".")
                yield from walk(inner, here)


def test_fields_of_vmis_are_kubevirts():
    assert dict(walk(VirtualMachineInstance)) == table()


def test_fields_of_replica_sets_are_kubevirts():
    paths = dict(walk(VirtualMachineInstanceReplicaSet))
    assert paths["spec"] == ["paused", "replicas", "selector", "template"]
    assert paths["spec.template"] == ["metadata", "spec"]
    assert paths["status"] == ["conditions", "labelSelector", "readyReplicas", "replicas"]
    below = {path: names for path, names in table().items() if path.split(".")[0] == "spec"}
    for path, names in below.items():
        assert paths[f"spec.template.{path}"] == names


REQUIRED = {
    "spec": {"domain"},
    "spec.domain": {"devices"},
    "spec.domain.devices.disks": {"name"},
    "spec.domain.devices.interfaces": {"name"},
    "spec.domain.devices.inputs": {"name", "type"},
    "spec.domain.devices.filesystems": {"name", "virtiofs"},
    "spec.networks": {"name"},
    "spec.networks.multus": {"networkName"},
    "spec.volumes": {"name"},
    "spec.volumes.containerDisk": {"image"},
    "spec.volumes.emptyDisk": {"capacity"},
    "spec.volumes.hostDisk": {"path", "type"},
    "spec.volumes.dataVolume": {"name"},
}


def required(view: type[Struct], path: str = "") -> Iterator[tuple[str, set[str]]]:
    fields = msgspec.structs.fields(view)
    yield path, {field.encode_name for field in fields if field.required}
    for field in fields:
        for inner in structs(field.type):
            yield from required(inner, f"{path}.{field.encode_name}".lstrip("."))


@pytest.mark.parametrize("path", REQUIRED)
def test_required_fields_are_kubevirts(path):
    assert dict(required(VirtualMachineInstance))[path] == REQUIRED[path]


def test_a_view_ignores_unknown_fields():
    document = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "default", "fromTheFuture": 1},
        "spec": {"domain": {"devices": {"warpDrive": {}}}, "hostname": "guest"},
        "status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]},
    }
    machine = msgspec.json.decode(msgspec.json.encode(document), type=VirtualMachineInstance)
    assert str(machine.key) == "default/vm"
    assert machine.spec.hostname == "guest"
    assert machine.is_final
    assert machine.status.conditions[0].type == "Ready"
