"""Each rule for a machine's spec: what breaks it, where it is said to be, and in which words."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from corral.api.kinds.vmi.validation import check_spec
from corral.api.kinds.vmi.vmi import Spec

DISK = "spec.domain.devices.disks[0]"
INTERFACE = "spec.domain.devices.interfaces[0]"
NO_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def causes(document: dict[str, Any], path: str = "spec") -> dict[str, str]:
    document.setdefault("domain", {}).setdefault("devices", {})
    return {
        cause.field: cause.message for cause in check_spec(msgspec.convert(document, Spec), path)
    }


def with_domain(**fields: Any) -> dict[str, Any]:
    return {"domain": {"devices": {}, **fields}}


def with_disk(volume: dict[str, Any] | None = None, **disk: Any) -> dict[str, Any]:
    volumes = [{"name": "root", **(volume or {"containerDisk": {"image": "cirros"}})}]
    return {
        "domain": {"devices": {"disks": [{"name": "root", **disk}]}},
        "volumes": volumes,
    }


def with_volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "data", **source}]}


def with_interface(network: dict[str, Any] | None = None, **interface: Any) -> dict[str, Any]:
    return {
        "domain": {"devices": {"interfaces": [{"name": "default", **interface}]}},
        "networks": [{"name": "default", **({"pod": {}} if network is None else network)}],
    }


def resources(requests: dict[str, str], limits: dict[str, str] | None = None) -> dict[str, Any]:
    return with_domain(resources={"requests": requests, "limits": limits or {}})


def with_keys(way: dict[str, Any], source: dict[str, Any] | None = None) -> dict[str, Any]:
    source = {"secret": {"secretName": "keys"}} if source is None else source
    return {"accessCredentials": [{"sshPublicKey": {"source": source, "propagationMethod": way}}]}


NAME = {"fieldPath": "metadata.name"}
FACTS = "spec.volumes[0].downwardAPI.fields"


def with_facts(*fields: dict[str, Any]) -> dict[str, Any]:
    return with_volume(downwardAPI={"fields": list(fields)})


WRONG = [
    # capacity
    (
        resources({"storage": "1Gi"}),
        "spec.domain.resources.requests[storage]",
        (
            'spec.domain.resources.requests[storage]: Invalid value: "storage": '
            "must be a standard resource for containers"
        ),
    ),
    (
        resources({}, {"requests.a.b/c": "1"}),
        "spec.domain.resources.limits[requests.a.b/c]",
        (
            'spec.domain.resources.limits[requests.a.b/c]: Invalid value: "requests.a.b/c": '
            "doesn't follow extended resource name standard"
        ),
    ),
    (
        resources({"memory": "-64Mi"}),
        "spec.domain.resources.requests.memory",
        "spec.domain.resources.requests.memory '-64Mi': must be greater than or equal to 0.",
    ),
    (
        resources({"memory": "1k"}),
        "spec.domain.resources.requests.memory",
        "spec.domain.resources.requests.memory '1k': must be greater than or equal to 1M.",
    ),
    (
        resources({}, {"cpu": "-1"}),
        "spec.domain.resources.limits.cpu",
        "spec.domain.resources.limits.cpu '-1': must be greater than or equal to 0.",
    ),
    (
        resources({"memory": "128Mi"}, {"memory": "64Mi"}),
        "spec.domain.resources.requests.memory",
        (
            "spec.domain.resources.requests.memory '128Mi' is greater than "
            "spec.domain.resources.limits.memory '64Mi'"
        ),
    ),
    (
        resources({"cpu": "1500m"}, {"cpu": "1"}),
        "spec.domain.resources.requests.cpu",
        (
            "spec.domain.resources.requests.cpu '1500m' is greater than "
            "spec.domain.resources.limits.cpu '1'"
        ),
    ),
    (
        with_domain(memory={"guest": "128Mi"}, resources={"limits": {"memory": "64Mi"}}),
        "spec.domain.memory.guest",
        (
            "spec.domain.memory.guest '128Mi' must be equal to or less than the memory limit "
            "spec.domain.resources.limits.memory '64Mi'"
        ),
    ),
    (
        with_domain(memory={"guest": "0"}),
        "spec.domain.memory.guest",
        "spec.domain.memory.guest '0': must be greater than 0.",
    ),
    (
        with_domain(cpu={"features": [{"name": "vmx", "policy": "perhaps"}]}),
        "spec.domain.cpu.features[0].policy",
        "CPU feature vmx uses policy perhaps that is not supported.",
    ),
    (
        with_domain(cpu={"sockets": 4, "maxSockets": 2}),
        "spec.domain.cpu.sockets",
        "Number of sockets in CPU topology is greater than the maximum sockets allowed",
    ),
    (
        with_domain(cpu={"sockets": 4, "cores": 32, "threads": 2}),
        "spec.domain.cpu",
        (
            "spec.domain.cpu asks for 256 virtual processors, more than the 255 that a machine can "
            "have."
        ),
    ),
    (
        with_domain(cpu={"isolateEmulatorThread": True}),
        "spec.domain.cpu.isolateEmulatorThread",
        "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement",
    ),
    (
        with_domain(cpu={"realtime": {}}),
        "spec.domain.cpu.dedicatedCpuPlacement",
        (
            "spec.domain.cpu.dedicatedCpuPlacement must be set to true when "
            "spec.domain.cpu.realtime is used"
        ),
    ),
    ({"architecture": "z80"}, "spec.architecture", "unsupported architecture: z80"),
    (
        with_domain(machine={"type": "toaster"}),
        "spec.domain.machine.type",
        (
            "spec.domain.machine.type is not supported: toaster "
            "(allowed values: [q35 pc pc-q35-* pc-i440fx-*])"
        ),
    ),
    (
        with_domain(firmware={"uuid": "7"}),
        "spec.domain.firmware.uuid",
        "spec.domain.firmware.uuid '7' is not a valid UUID.",
    ),
    (
        with_domain(firmware={"serial": "a b"}),
        "spec.domain.firmware.serial",
        (
            "spec.domain.firmware.serial must be made up of the following characters "
            "[A-Za-z0-9_.+-], if specified"
        ),
    ),
    (
        with_domain(firmware={"serial": "x" * 257}),
        "spec.domain.firmware.serial",
        "spec.domain.firmware.serial must be less than or equal to 256 in length, if specified",
    ),
    (
        with_domain(firmware={"bootloader": {"efi": {}, "bios": {}}}),
        "spec.domain.firmware.bootloader",
        (
            "spec.domain.firmware.bootloader has both EFI and BIOS configured, "
            "but they are mutually exclusive."
        ),
    ),
    (
        with_domain(memory={"hugepages": {"pageSize": "huge"}}),
        "spec.domain.hugepages.size",
        (
            "spec.domain.hugepages.size 'huge': quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ),
    ),
    (
        with_domain(
            memory={"hugepages": {"pageSize": "2Mi"}}, resources={"requests": {"memory": "1Mi"}}
        ),
        "spec.domain.resources.requests.memory",
        (
            "spec.domain.resources.requests.memory '1Mi' must be equal to or larger than page size "
            "spec.domain.hugepages.size '2Mi'"
        ),
    ),
    (
        with_domain(
            memory={"hugepages": {"pageSize": "2Mi"}}, resources={"requests": {"memory": "3Mi"}}
        ),
        "spec.domain.resources.requests.memory",
        (
            "spec.domain.resources.requests.memory '3Mi' is not a multiple of the page size "
            "spec.domain.hugepages.size '2Mi'"
        ),
    ),
    (
        with_domain(cpu={"model": "host,+vmx"}),
        "spec.domain.cpu.model",
        "spec.domain.cpu.model 'host,+vmx' is not the name of a processor.",
    ),
    (
        with_domain(machine={"type": "pc-q35-7.2,accel=tcg"}),
        "spec.domain.machine.type",
        (
            "spec.domain.machine.type is not supported: pc-q35-7.2,accel=tcg "
            "(allowed values: [q35 pc pc-q35-* pc-i440fx-*])"
        ),
    ),
    (
        with_domain(firmware={"uuid": "5d307ca9b3ef428c886106e72d69f223"}),
        "spec.domain.firmware.uuid",
        "spec.domain.firmware.uuid '5d307ca9b3ef428c886106e72d69f223' is not a valid UUID.",
    ),
    (
        with_domain(chassis={"asset": "a\0b"}),
        "spec.domain.chassis.asset",
        "spec.domain.chassis.asset must be made up of printable characters",
    ),
    (
        with_domain(chassis={"sku": "x" * 257}),
        "spec.domain.chassis.sku",
        "spec.domain.chassis.sku must be less than or equal to 256 in length, if specified",
    ),
    # devices
    (
        with_domain(devices={"inputs": [{"name": "a", "type": "tablet", "bus": "ps2"}]}),
        "spec.domain.devices.inputs[0].bus",
        "Input device can have only virtio or usb bus.",
    ),
    (
        with_domain(devices={"inputs": [{"name": "a", "type": "keyboard"}]}),
        "spec.domain.devices.inputs[0].type",
        "Input device can have only tablet type.",
    ),
    (
        with_domain(devices={"panicDevices": [{"model": "scream"}]}),
        "spec.domain.devices.panicDevices[0].model",
        "invalid PanicDeviceModel(scream)",
    ),
    (
        with_domain(devices={"sound": {"name": "a", "model": "adlib"}}),
        "spec.domain.devices.sound",
        "Sound device type is not supported. Options: 'ich9' or 'ac97'",
    ),
    (
        with_domain(devices={"watchdog": {"name": "a", "i6300esb": {"action": "bark"}}}),
        "spec.domain.devices.watchdog.i6300esb.action",
        (
            "spec.domain.devices.watchdog.i6300esb.action has invalid value bark, "
            "must be one of: [poweroff reset shutdown]"
        ),
    ),
    (
        with_domain(ioThreadsPolicy="many"),
        "spec.domain.ioThreadsPolicy",
        "Invalid IOThreadsPolicy (many)",
    ),
    (
        with_domain(ioThreadsPolicy="supplementalPool"),
        "spec.domain.ioThreads.count",
        "the number of iothreads needs to be set and positive for the dedicated policy",
    ),
    (
        {"accessCredentials": [{}]},
        "spec.accessCredentials[0]",
        "spec.accessCredentials[0] must have exactly one access credential type set",
    ),
    (
        with_keys({"noCloud": {}}),
        "spec.accessCredentials[0].sshPublicKey.propagationMethod",
        (
            "spec.accessCredentials[0] requires a noCloud volume to exist when the noCloud "
            "propagationMethod is in use."
        ),
    ),
    (
        with_keys({"qemuGuestAgent": {"users": []}}),
        "spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users",
        "spec.accessCredentials[0] requires at least one user to be present in the users list",
    ),
    (
        with_keys({}),
        "spec.accessCredentials[0].sshPublicKey.propagationMethod",
        "spec.accessCredentials[0] must have exactly one propagationMethod set",
    ),
    (
        with_keys({"qemuGuestAgent": {"users": ["root"]}}, source={}),
        "spec.accessCredentials[0].sshPublicKey.source",
        "spec.accessCredentials[0] must have exactly one source set",
    ),
    # disks
    (
        with_domain(devices={"disks": [{"name": "testdisk"}]}),
        f"{DISK}.name",
        f"{DISK}.Name 'testdisk' not found.",
    ),
    (
        with_domain(devices={"disks": [{"name": "testdisk", "lun": {}}]}),
        f"{DISK}.name",
        f"{DISK}.Name 'testdisk' not found.",
    ),
    (
        with_disk(lun={}),
        f"{DISK}.lun",
        f"{DISK}.lun can only be mapped to a DataVolume or PersistentVolumeClaim volume.",
    ),
    (
        with_disk(disk={}, cdrom={}),
        DISK,
        f"{DISK} can only have a single target type defined",
    ),
    (with_disk(disk={"bus": "ide"}), f"{DISK}.disk.bus", "IDE bus is not supported"),
    (
        with_disk(cdrom={"bus": "virtio"}),
        f"{DISK}.cdrom.bus",
        "Bus type virtio is invalid for CD-ROM device",
    ),
    (
        with_disk(disk={"bus": "sata", "readonly": True}),
        f"{DISK}.disk.bus",
        "sata hard-disks do not support read-only.",
    ),
    (
        with_disk(disk={"bus": "tram"}),
        f"{DISK}.disk.bus",
        f"{DISK} is set with an unrecognized bus tram, must be one of: [virtio scsi sata usb]",
    ),
    (
        with_disk(disk={"bus": "sata"}, dedicatedIOThread=True),
        DISK,
        "IOThreads are not supported for disks on a sata bus",
    ),
    (
        with_disk(bootOrder=0),
        f"{DISK}.bootOrder",
        f"{DISK} must have a boot order > 0, if supplied",
    ),
    (
        with_disk(serial="?"),
        f"{DISK}.serial",
        f"{DISK} must be made up of the following characters [A-Za-z0-9_.+-], if specified",
    ),
    (with_disk(cache="all"), f"{DISK}.cache", f"{DISK}.cache has invalid value all"),
    (
        with_disk(io="magic"),
        f"{DISK}.io",
        f"Disk IO mode for {DISK} is not supported. Supported modes are: native, threads.",
    ),
    (
        with_disk(errorPolicy="weep"),
        f"{DISK}.errorPolicy",
        f'{DISK}.errorPolicy has invalid value "weep"',
    ),
    (
        with_disk(blockSize={"custom": {"logical": 256, "physical": 512}}),
        f"{DISK}.blockSize.custom.logical",
        "Provided size of 256 is less than the supported minimum size of 512",
    ),
    (
        with_disk(blockSize={"custom": {"logical": 512, "physical": 4194304}}),
        f"{DISK}.blockSize.custom.physical",
        "Provided size of 4194304 is greater than the supported maximum size of 2097152",
    ),
    (
        with_disk(blockSize={"custom": {"logical": 513, "physical": 1024}}),
        f"{DISK}.blockSize.custom.logical",
        "Provided size of 513 is not a power of 2",
    ),
    (
        with_disk(blockSize={"custom": {"logical": 4096, "physical": 512}}),
        f"{DISK}.blockSize.custom.logical",
        "Logical size 4096 must be the same or less than the physical size of 512",
    ),
    (
        with_disk(blockSize={"custom": {}, "matchVolume": {}}),
        f"{DISK}.blockSize",
        "Block size matching can't be enabled together with a custom value",
    ),
    (
        with_disk(disk={"bus": "sata"}, blockSize={"custom": {"logical": 4096, "physical": 4096}}),
        f"{DISK}.blockSize.custom.logical",
        "Logical size 4096 must be 512 for SATA devices",
    ),
    # volumes
    (
        with_volume(),
        "spec.volumes[0]",
        "spec.volumes[0] must have exactly one source type set",
    ),
    (
        with_volume(emptyDisk={"capacity": "1Gi"}, containerDisk={"image": "cirros"}),
        "spec.volumes[0]",
        "spec.volumes[0] must have exactly one source type set",
    ),
    (
        {"volumes": [{"name": "No_Name", "emptyDisk": {"capacity": "1Gi"}}]},
        "spec.volumes[0].name",
        NO_LABEL,
    ),
    (
        {"volumes": [{"name": "a", "emptyDisk": {"capacity": "1Gi"}}] * 2},
        "spec.volumes[1].name",
        "spec.volumes[1] and spec.volumes[0] must not have the same Name.",
    ),
    (
        with_volume(emptyDisk={"capacity": "0"}),
        "spec.volumes[0].emptyDisk.capacity",
        "spec.volumes[0].emptyDisk.capacity '0': must be greater than 0.",
    ),
    (
        with_volume(containerDisk={"image": ""}),
        "spec.volumes[0].containerDisk.image",
        "spec.volumes[0].containerDisk.image is a required field",
    ),
    (
        with_volume(containerDisk={"image": "a", "path": "/"}),
        "spec.volumes[0].containerDisk",
        "spec.volumes[0].containerDisk must not point to root",
    ),
    (
        with_volume(containerDisk={"image": "a", "path": "/disk/../etc/shadow"}),
        "spec.volumes[0].containerDisk",
        (
            "spec.volumes[0].containerDisk must be an absolute path to a file "
            "without relative components"
        ),
    ),
    (
        with_volume(containerDisk={"image": "a", "imagePullPolicy": "Sometimes"}),
        "spec.volumes[0].containerDisk.imagePullPolicy",
        (
            'spec.volumes[0].containerDisk.imagePullPolicy: Unsupported value: "Sometimes": '
            'supported values: "Always", "IfNotPresent", "Never"'
        ),
    ),
    (
        with_volume(cloudInitNoCloud={}),
        "spec.volumes[0].cloudInitNoCloud",
        (
            "spec.volumes[0].cloudInitNoCloud must have at least one userdatasource "
            "or one networkdatasource set."
        ),
    ),
    (
        with_volume(cloudInitNoCloud={"userData": "a", "userDataBase64": "YQ=="}),
        "spec.volumes[0].cloudInitNoCloud",
        "spec.volumes[0].cloudInitNoCloud must have only one userdatasource set.",
    ),
    (
        with_volume(cloudInitNoCloud={"networkData": "a", "networkDataSecretRef": {"name": "s"}}),
        "spec.volumes[0].cloudInitNoCloud",
        "spec.volumes[0].cloudInitNoCloud must have only one networkdata source set.",
    ),
    (
        with_volume(cloudInitNoCloud={"userData": "x" * 2049}),
        "spec.volumes[0].cloudInitNoCloud",
        (
            "spec.volumes[0].cloudInitNoCloud userdata exceeds 2048 byte limit. "
            "Should use UserDataSecretRef for larger data."
        ),
    ),
    (
        with_volume(cloudInitNoCloud={"userData": "ok", "networkData": "x" * 2049}),
        "spec.volumes[0].cloudInitNoCloud",
        (
            "spec.volumes[0].cloudInitNoCloud networkdata exceeds 2048 byte limit. "
            "Should use NetworkDataSecretRef for larger data."
        ),
    ),
    # volumes that are made of files
    (
        with_volume(configMap={}),
        "spec.volumes[0].configMap.name",
        "spec.volumes[0].configMap.name is a required field",
    ),
    (
        with_volume(secret={}),
        "spec.volumes[0].secret.secretName",
        "spec.volumes[0].secret.secretName is a required field",
    ),
    (
        with_volume(serviceAccount={}),
        "spec.volumes[0].serviceAccount.serviceAccountName",
        "spec.volumes[0].serviceAccount.serviceAccountName is a required field",
    ),
    (
        {"volumes": [{"name": x, "serviceAccount": {"serviceAccountName": x}} for x in "ab"]},
        "spec.volumes",
        "spec.volumes must have max one serviceAccount volume set",
    ),
    (
        with_volume(secret={"secretName": "s", "volumeLabel": "x" * 33}),
        "spec.volumes[0].secret.volumeLabel",
        (
            f'spec.volumes[0].secret.volumeLabel: Invalid value: "{"x" * 33}": must be at most 32 '
            "printable ASCII characters"
        ),
    ),
    (
        with_volume(hostDisk={"path": "", "type": "Disk"}),
        "spec.volumes[0].hostDisk.path",
        "spec.volumes[0].hostDisk.path is required for hostDisk volume",
    ),
    (
        with_volume(hostDisk={"path": "/a", "type": "Create"}),
        "spec.volumes[0].hostDisk.type",
        (
            "spec.volumes[0].hostDisk.type has invalid value 'Create', allowed are 'Disk' or "
            "'DiskOrCreate'"
        ),
    ),
    (
        with_volume(hostDisk={"path": "/a", "type": "Disk", "capacity": "1Gi"}),
        "spec.volumes[0].hostDisk.capacity",
        (
            "spec.volumes[0].hostDisk.capacity is allowed to pass only with "
            "spec.volumes[0].hostDisk.type equal to 'DiskOrCreate'"
        ),
    ),
    (
        with_volume(sysprep={"secret": {"name": "a"}, "configMap": {"name": "b"}}),
        "spec.volumes[0].sysprep",
        "spec.volumes[0].sysprep must name exactly one of secret and configMap",
    ),
    (
        with_volume(cloudInitConfigDrive={"userDataBase64": "%%%"}),
        "spec.volumes[0].cloudInitConfigDrive.userDataBase64",
        "spec.volumes[0].cloudInitConfigDrive.userDataBase64 is not a valid base64 value.",
    ),
    # networks
    (with_interface({}), "spec.networks[0]", "should have a network type"),
    (
        with_interface({"pod": {}, "multus": {"networkName": "red"}}),
        "spec.networks[0]",
        "should have only one network type",
    ),
    (
        {"networks": [{"name": "blue", "pod": {}}]},
        "spec.networks[0].name",
        "spec.networks[0].name 'blue' not found.",
    ),
    (
        with_domain(devices={"interfaces": [{"name": "blue"}]}),
        f"{INTERFACE}.name",
        f"{INTERFACE}.name 'blue' not found.",
    ),
    (
        with_interface(model="token-ring"),
        f"{INTERFACE}.model",
        f"interface {INTERFACE}.name uses model token-ring that is not supported.",
    ),
    (
        with_interface(macAddress="de:ad"),
        f"{INTERFACE}.macAddress",
        f"interface {INTERFACE}.name has malformed MAC address (de:ad).",
    ),
    (
        with_interface(masquerade={}, macAddress="02-00-00-00-00-00"),
        f"{INTERFACE}.macAddress",
        "The requested MAC address is reserved for the in-pod bridge. Please choose another one.",
    ),
    (
        with_interface({"multus": {"networkName": "red"}}, masquerade={}),
        f"{INTERFACE}.name",
        "Masquerade interface only implemented with pod network",
    ),
    (
        with_interface(masquerade={}, bridge={}),
        INTERFACE,
        "logical default interface must have only one interface binding method",
    ),
    (
        with_interface(masquerade={}, binding={"name": "plug"}),
        f"{INTERFACE}.binding",
        "logical default interface cannot have both binding plugin and interface binding method",
    ),
    (
        with_interface(ports=[{"port": 0}]),
        f"{INTERFACE}.ports[0]",
        "Port field is mandatory.",
    ),
    (
        with_interface(ports=[{"port": 65536}]),
        f"{INTERFACE}.ports[0]",
        "Port field must be in range 0 < x < 65536.",
    ),
    (
        with_interface(ports=[{"port": 80, "protocol": "SCTP"}]),
        f"{INTERFACE}.ports[0].protocol",
        "Unknown protocol, only TCP or UDP allowed",
    ),
    (
        with_interface(ports=[{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]),
        f"{INTERFACE}.ports[1].name",
        "Duplicate name of the port: a",
    ),
    (
        with_interface(ports=[{"port": 80, "name": "123"}]),
        f"{INTERFACE}.ports[0].name",
        "Invalid name of the port: 123",
    ),
    (
        with_interface(state="sideways"),
        f"{INTERFACE}.state",
        "logical default interface state value is unsupported: sideways",
    ),
    (
        with_interface(acpiIndex=16384),
        f"{INTERFACE}.acpiIndex",
        f"{INTERFACE}.acpiIndex '16384' must be between 1 and 16383.",
    ),
    (
        with_interface({"pod": {"vmNetworkCIDR": "10.0.0.1/24"}}),
        "spec.networks[0].pod.vmNetworkCIDR",
        "spec.networks[0].pod.vmNetworkCIDR '10.0.0.1/24' is not a valid IPv4 CIDR.",
    ),
    (
        with_interface({"pod": {"vmNetworkCIDR": "10.0.0.0/28"}}),
        "spec.networks[0].pod.vmNetworkCIDR",
        (
            "spec.networks[0].pod.vmNetworkCIDR '10.0.0.0/28' is too small: "
            "/27 is the smallest range."
        ),
    ),
    (
        with_interface({"pod": {"vmIPv6NetworkCIDR": "10.0.0.0/24"}}),
        "spec.networks[0].pod.vmIPv6NetworkCIDR",
        "spec.networks[0].pod.vmIPv6NetworkCIDR '10.0.0.0/24' is not a valid IPv6 CIDR.",
    ),
    (
        with_interface({"pod": {"vmIPv6NetworkCIDR": "fd00::/127"}}),
        "spec.networks[0].pod.vmIPv6NetworkCIDR",
        (
            "spec.networks[0].pod.vmIPv6NetworkCIDR 'fd00::/127' is too small: "
            "/126 is the smallest range."
        ),
    ),
    (
        with_interface(dhcpOptions={"privateOptions": [{"option": 223, "value": "x"}]}),
        f"{INTERFACE}.dhcpOptions.privateOptions",
        "provided DHCPPrivateOptions are out of range, must be in range 224 to 254",
    ),
    (
        with_interface(dhcpOptions={"privateOptions": [{"option": 230, "value": "x"}] * 2}),
        f"{INTERFACE}.dhcpOptions.privateOptions",
        "Found Duplicates: you have provided duplicate DHCPPrivateOptions",
    ),
    (
        with_interface(dhcpOptions={"ntpServers": ["192.0.2.1", "pool.ntp.org"]}),
        f"{INTERFACE}.dhcpOptions.ntpServers[1]",
        "NTP servers must be a list of valid IPv4 addresses.",
    ),
    # placement
    (
        {"hostname": "Up.Case"},
        "spec.hostname",
        f"spec.hostname does not conform to the kubernetes DNS_LABEL rules : {NO_LABEL}",
    ),
    (
        {"terminationGracePeriodSeconds": -1},
        "spec.terminationGracePeriodSeconds",
        "spec.terminationGracePeriodSeconds '-1': must be greater than or equal to 0.",
    ),
    (
        {"terminationGracePeriodSeconds": 2**31},
        "spec.terminationGracePeriodSeconds",
        f"spec.terminationGracePeriodSeconds '{2**31}': must be less than or equal to {2**31 - 1}.",
    ),
    (
        {"evictionStrategy": "Flee"},
        "spec.evictionStrategy",
        "spec.evictionStrategy is set with an unrecognized option: Flee",
    ),
    (
        {"startStrategy": "Slowly"},
        "spec.startStrategy",
        "spec.startStrategy is set with an unrecognized option: Slowly",
    ),
    (
        {"startStrategy": "Paused", "livenessProbe": {"guestAgentPing": {}}},
        "spec.startStrategy",
        (
            "either spec.startStrategy or spec.livenessProbe should be provided."
            "Pausing VMI with LivenessProbe is not supported"
        ),
    ),
    (
        {"readinessProbe": {}},
        "spec.readinessProbe",
        (
            "either spec.readinessProbe.tcpSocket, spec.readinessProbe.exec or "
            "spec.readinessProbe.httpGet must be set if a spec.readinessProbe is specified"
        ),
    ),
    (
        {"livenessProbe": {"guestAgentPing": {}, "tcpSocket": {"port": 22}}},
        "spec.livenessProbe",
        "spec.livenessProbe must have exactly one probe type set",
    ),
    (
        {
            **with_domain(devices={"autoattachPodInterface": False}),
            "readinessProbe": {"httpGet": {"port": 80}},
        },
        "spec.readinessProbe.httpGet",
        "spec.readinessProbe.httpGet is only allowed if the Pod Network is attached",
    ),
    (
        {"readinessProbe": {"guestAgentPing": {}, "periodSeconds": -1}},
        "spec.readinessProbe.periodSeconds",
        "spec.readinessProbe.periodSeconds '-1': must be greater than or equal to 0.",
    ),
    (
        {"livenessProbe": {"guestAgentPing": {}, "successThreshold": 5}},
        "spec.livenessProbe.successThreshold",
        "spec.livenessProbe.successThreshold '5': must be 1",
    ),
    (
        {"readinessProbe": {"exec": {"command": []}}},
        "spec.readinessProbe.exec.command",
        "spec.readinessProbe.exec.command: Required value",
    ),
    *(
        (
            {"readinessProbe": {"tcpSocket": {"port": port}}},
            "spec.readinessProbe.tcpSocket.port",
            f"spec.readinessProbe.tcpSocket.port '{port}': {fault}",
        )
        for port, fault in (
            (0, "must be between 1 and 65535, inclusive"),
            (70000, "must be between 1 and 65535, inclusive"),
            ("80", "must contain at least one letter (a-z)"),
            ("a-port-of-16-let", "must be no more than 15 bytes"),
        )
    ),
    (
        {"dnsPolicy": "Hearsay"},
        "spec.dnsPolicy",
        (
            "DNSPolicy: Hearsay is not supported, valid values: "
            "[ClusterFirstWithHostNet ClusterFirst Default None ]"
        ),
    ),
    (
        {"dnsPolicy": "None"},
        "spec.dnsConfig",
        "must provide `dnsConfig` when `dnsPolicy` is None",
    ),
    (
        {"dnsConfig": {"nameservers": ["dns.example"]}},
        "spec.dnsConfig.nameservers",
        "must be valid IP address: dns.example",
    ),
    (
        {"tolerations": [{"operator": "Maybe", "key": "a"}]},
        "spec.tolerations[0].operator",
        (
            'spec.tolerations[0].operator: Unsupported value: "Maybe": '
            'supported values: "Equal", "Exists"'
        ),
    ),
    (
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "In"}]}
                        ]
                    }
                }
            }
        },
        (
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].values"
        ),
        (
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified "
            "when `operator` is 'In' or 'NotIn'"
        ),
    ),
]


@pytest.mark.parametrize(("document", "field", "message"), WRONG, ids=lambda part: str(part)[:60])
def test_causes_have_the_path_of_the_fault(document, field, message):
    assert causes(document) == {field: message}


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (with_facts({"path": "/etc", "fieldRef": NAME}), f"{FACTS}[0].path", "a relative path"),
        (with_facts({"path": "a/../b", "fieldRef": NAME}), f"{FACTS}[0].path", "not contain '..'"),
        (with_facts({"path": "a//b", "fieldRef": NAME}), f"{FACTS}[0].path", "a plain path"),
        (with_facts({"path": "", "fieldRef": NAME}), f"{FACTS}[0].path", "Required value"),
        (with_facts({"path": "a" * 201, "fieldRef": NAME}), f"{FACTS}[0].path", "at most 200"),
        (
            with_facts({"path": "a", "fieldRef": NAME}, {"path": "a", "fieldRef": NAME}),
            f"{FACTS}[1].path",
            'Duplicate value: "a"',
        ),
        (
            with_facts({"path": "a", "fieldRef": NAME}, {"path": "a/b", "fieldRef": NAME}),
            f"{FACTS}[0].path",
            "is a directory of another file",
        ),
        (with_facts({"path": "a"}), f"{FACTS}[0]", "one of fieldRef and resourceFieldRef"),
        (
            with_facts({"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}}),
            f"{FACTS}[0].fieldRef.fieldPath",
            'Unsupported value: "spec.nodeName": supported values: "metadata.annotations"',
        ),
    ],
)
def test_downward_api_fields_must_exist(document, field, message):
    found = causes(document)
    assert list(found) == [field]
    assert found[field].startswith(f"{field}: ")
    assert message in found[field]


def test_boot_orders_are_unique():
    document = with_disk(bootOrder=1)
    document["domain"]["devices"]["interfaces"] = [{"name": "default", "bootOrder": 1}]
    document["networks"] = [{"name": "default", "pod": {}}]
    field = f"{INTERFACE}.bootOrder"
    assert causes(document) == {
        field: f"Boot order for {field} already set for a different device."
    }


def test_names_of_disks_are_unique():
    document = with_disk()
    document["domain"]["devices"]["disks"].append({"name": "root"})
    message = "spec.domain.devices.disks[1] and spec.domain.devices.disks[0] must not have the same"
    assert causes(document) == {"spec.domain.devices.disks[1].name": f"{message} Name."}


def sources(one: dict[str, Any], two: dict[str, Any], **disk: Any) -> dict[str, Any]:
    """A machine with two volumes; ``disk`` is said of the second one's."""
    return {
        "domain": {"devices": {"disks": [{"name": "a"}, {"name": "b", **disk}]}},
        "volumes": [{"name": "a", **one}, {"name": "b", **two}],
    }


CLAIM = {"persistentVolumeClaim": {"claimName": "x"}}
READ = {"persistentVolumeClaim": {"claimName": "x", "readOnly": True}}
FILE = {"hostDisk": {"path": "/d/x", "type": "Disk"}}


@pytest.mark.parametrize(
    ("one", "two", "what"),
    [
        (CLAIM, CLAIM, 'claim "x"'),
        (CLAIM, {"dataVolume": {"name": "x"}}, 'claim "x"'),
        (FILE, {"hostDisk": {"path": "/d//x", "type": "DiskOrCreate"}}, 'file "/d/x"'),
    ],
)
def test_two_disks_cannot_write_the_same_volume(one, two, what):
    assert causes(sources(one, two)) == {
        "spec.volumes[1]": (
            f"spec.volumes[1] and spec.volumes[0] must not both write to the {what}. "
            "Make their disks shareable, or one of them read-only."
        )
    }


@pytest.mark.parametrize(
    "document",
    [
        sources(CLAIM, READ),
        sources(CLAIM, CLAIM, cdrom={}),
        sources(CLAIM, CLAIM, disk={"readonly": True}),
        sources(CLAIM, CLAIM, shareable=True),
        sources(CLAIM, {"ephemeral": READ}),
        sources(CLAIM, FILE),
        sources(CLAIM, {"dataVolume": {"name": "y"}}),
    ],
)
def test_one_disk_can_write_a_volume_that_others_read(document):
    assert causes(document) == {}


def test_networks_have_unique_names_and_one_pod_network():
    document = with_interface()
    document["networks"].append({"name": "default", "pod": {}})
    assert causes(document) == {
        "spec.networks[1].name": 'Network with name "default" already exists, every network must '
        "have a unique name",
        "spec.interfaces": (
            "more than one interface is connected to a pod network in spec.interfaces"
        ),
    }


def test_paths_begin_at_the_given_path():
    document = with_domain(devices={"disks": [{"name": "testdisk"}]})
    here = "spec.template.spec.domain.devices.disks[0]"
    assert causes(document, "spec.template.spec") == {
        f"{here}.name": f"{here}.Name 'testdisk' not found."
    }


@pytest.mark.parametrize(
    "document",
    [
        {},
        with_disk(disk={"bus": "virtio", "readonly": True}, serial="a.b_c+d-1", bootOrder=3),
        with_disk(cdrom={"bus": "sata", "readonly": True}),
        with_disk(volume={"persistentVolumeClaim": {"claimName": "x"}}, lun={"bus": "scsi"}),
        with_volume(containerDisk={"image": "a", "path": "/disk/cirros.img"}),
        with_volume(cloudInitNoCloud={"userData": "x" * 2048}),
        with_volume(cloudInitNoCloud={"secretRef": {"name": "s"}, "networkData": "a"}),
        with_interface(masquerade={}, macAddress="de-ad-00-00-be-af", ports=[{"port": 80}]),
        with_interface(bridge={}, model="e1000e"),
        with_domain(machine={"type": "pc-q35-7.2"}),
        with_domain(firmware={"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "A1"}),
        resources({"memory": "64M", "cpu": "100m"}, {"cpu": "300m"}),
        {"readinessProbe": {"httpGet": {"port": 80}}},
        {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "a"}},
    ],
)
def test_valid_specs_are_accepted(document):
    assert causes(document) == {}


@given(st.integers(min_value=-5, max_value=5), st.integers(min_value=-5, max_value=5))
def test_boot_orders_must_be_positive_and_unique(first, second):
    document = {
        "domain": {
            "devices": {
                "disks": [
                    {"name": "a", "bootOrder": first},
                    {"name": "b", "bootOrder": second},
                ]
            }
        },
        "volumes": [{"name": name, "emptyDisk": {"capacity": "1Gi"}} for name in "ab"],
    }
    assert (not causes(document)) == (first > 0 and second > 0 and first != second)


@given(st.binary(max_size=3000))
def test_the_size_of_user_data_is_that_of_the_decoded_data(data):
    encoded = base64.b64encode(data).decode()
    document = with_volume(cloudInitNoCloud={"userDataBase64": encoded, "networkData": "a"})
    assert (not causes(document)) == (len(data) <= 2048)
