"""Rules for devices other than disks and interfaces, and for access credentials."""

from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kinds.vmi.access import CredentialSource, SshPublicKey
from corral.api.kinds.vmi.vmi import Spec
from corral.api.object import Struct

IO_THREADS = (None, "shared", "auto", "supplementalPool")
PANIC_MODELS = (None, "hyperv", "isa", "pvpanic")
SOUND_MODELS = ("", "ich9", "ac97")
WATCHDOG_ACTIONS = ("", "poweroff", "reset", "shutdown")


def check_inputs(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that input devices are tablets on virtio or USB."""
    for index, device in enumerate(spec.domain.devices.inputs):
        here = f"{path}.domain.devices.inputs[{index}]"
        if device.bus not in ("", "virtio", "usb"):
            yield Cause(f"{here}.bus", "Input device can have only virtio or usb bus.")
        if device.type != "tablet":
            yield Cause(f"{here}.type", "Input device can have only tablet type.")


def check_models(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that models of panic devices, sound cards and watchdogs are supported."""
    devices, here = spec.domain.devices, f"{path}.domain.devices"
    for index, panic in enumerate(devices.panic_devices):
        if panic.model not in PANIC_MODELS:
            field = f"{here}.panicDevices[{index}].model"
            yield Cause(field, f"invalid PanicDeviceModel({panic.model})")
    if devices.sound is not None and devices.sound.model not in SOUND_MODELS:
        message = "Sound device type is not supported. Options: 'ich9' or 'ac97'"
        yield Cause(f"{here}.sound", message)
    watchdog = devices.watchdog
    if watchdog is not None:
        models = (("i6300esb", watchdog.i6300esb), ("diag288", watchdog.diag288))
        for name, model in models:
            if model is not None and model.action not in WATCHDOG_ACTIONS:
                field = f"{here}.watchdog.{name}.action"
                message = f"{field} has invalid value {model.action}, must be one of: "
                yield Cause(field, f"{message}[{' '.join(WATCHDOG_ACTIONS[1:])}]")


def check_io_threads(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that the I/O thread policy is supported; a pool has a size."""
    policy, threads = spec.domain.io_threads_policy, spec.domain.io_threads
    if policy not in IO_THREADS:
        yield Cause(f"{path}.domain.ioThreadsPolicy", f"Invalid IOThreadsPolicy ({policy})")
    count = threads.supplemental_pool_thread_count if threads is not None else None
    if policy == "supplementalPool" and not count:
        message = "the number of iothreads needs to be set and positive for the dedicated policy"
        yield Cause(f"{path}.domain.ioThreads.count", message)


def check_credentials(spec: Spec, path: str) -> Iterator[Cause]:
    """Check that each credential has one kind, one source and one propagation method."""
    for index, credential in enumerate(spec.access_credentials):
        here = f"{path}.accessCredentials[{index}]"
        kinds = (credential.ssh_public_key, credential.user_password)
        if sum(kind is not None for kind in kinds) != 1:
            yield Cause(here, f"{here} must have exactly one access credential type set")
        if (key := credential.ssh_public_key) is not None:
            count = _count_set(key.propagation_method)
            yield from _check_source_and_method(here, "sshPublicKey", key.source, count)
            yield from _check_key(spec, key, here)
        if (password := credential.user_password) is not None:
            count = _count_set(password.propagation_method)
            yield from _check_source_and_method(here, "userPassword", password.source, count)


def _count_set(union: Struct) -> int:
    return sum(getattr(union, name) is not None for name in union.__struct_fields__)


def _check_source_and_method(
    here: str, kind: str, source: CredentialSource, methods: int
) -> Iterator[Cause]:
    if source.secret is None:
        yield Cause(f"{here}.{kind}.source", f"{here} must have exactly one source set")
    if methods != 1:
        message = f"{here} must have exactly one propagationMethod set"
        yield Cause(f"{here}.{kind}.propagationMethod", message)


def _check_key(spec: Spec, key: SshPublicKey, here: str) -> Iterator[Cause]:
    method, field = key.propagation_method, f"{here}.sshPublicKey.propagationMethod"
    carriers = (
        ("noCloud", method.no_cloud, [volume.cloud_init_no_cloud for volume in spec.volumes]),
        (
            "configDrive",
            method.config_drive,
            [volume.cloud_init_config_drive for volume in spec.volumes],
        ),
    )
    for name, chosen, volumes in carriers:
        if chosen is not None and not any(volumes):
            message = f"{here} requires a {name} volume to exist when the {name} propagationMethod"
            yield Cause(field, f"{message} is in use.")
    if method.qemu_guest_agent is not None and not method.qemu_guest_agent.users:
        message = f"{here} requires at least one user to be present in the users list"
        yield Cause(f"{field}.qemuGuestAgent.users", message)


RULES = (check_inputs, check_models, check_io_threads, check_credentials)
