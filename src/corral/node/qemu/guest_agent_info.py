"""Answers of qemu-ga, converted to KubeVirt's API types.  Pure.

All of it comes from the guest: texts are cut, lists are bounded, numbers are checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from corral.api.object import Document

LONGEST_TEXT = 256
MOST_ITEMS = 64
MOST_COMMANDS = 512

_SYSTEM = {
    "name": "name",
    "kernelRelease": "kernel-release",
    "version": "version",
    "prettyName": "pretty-name",
    "versionId": "version-id",
    "kernelVersion": "kernel-version",
    "machine": "machine",
    "id": "id",
}


class Command(msgspec.Struct, rename="kebab"):
    """One command of guest-info."""

    name: str
    enabled: bool = True
    success_response: bool = True


class Information(msgspec.Struct):
    """The answer to guest-info."""

    version: str = ""
    supported_commands: list[Command] = []


class TimeZone(msgspec.Struct):
    """The answer to guest-get-timezone: seconds east of UTC."""

    zone: str = ""
    offset: int = 0


class UserEntry(msgspec.Struct, rename="kebab"):
    """One user of guest-get-users; the time is in seconds since 1970."""

    user: str
    login_time: float = 0.0
    domain: str = ""


class DiskAddress(msgspec.Struct, rename="kebab"):
    """One disk below a file system."""

    bus_type: str = ""
    serial: str = ""


class FilesystemEntry(msgspec.Struct, rename="kebab"):
    """One file system of guest-get-fsinfo."""

    name: str
    mountpoint: str = ""
    type: str = ""
    used_bytes: int = 0
    total_bytes: int = 0
    disk: list[DiskAddress] = []


def text(value: object) -> str:
    """Return a text of the guest, printable and cut to a length that can be shown."""
    if not isinstance(value, str):
        return ""
    return "".join(character for character in value[:LONGEST_TEXT] if character.isprintable())


def system(answer: Mapping[str, Any]) -> Mapping[str, str]:
    """Convert guest-get-osinfo to guestOSInfo."""
    values = {ours: text(answer.get(theirs)) for ours, theirs in _SYSTEM.items()}
    return {name: value for name, value in values.items() if value}


def commands(answer: Information) -> list[Document]:
    """Convert guest-info to supportedCommands."""
    return [
        {
            "name": text(one.name),
            "enabled": one.enabled,
            "successResponse": one.success_response,
        }
        for one in answer.supported_commands[:MOST_COMMANDS]
    ]


def time_zone(answer: TimeZone) -> str:
    """Convert guest-get-timezone to KubeVirt's form: the zone, and seconds east of UTC."""
    return f"{text(answer.zone)}, {answer.offset}"


def users(answer: Sequence[UserEntry]) -> list[Document]:
    """Convert guest-get-users to items of a user list."""
    return list(_users(answer[:MOST_ITEMS]))


def _users(answer: Sequence[UserEntry]) -> Iterator[Document]:
    for one in answer:
        user: Document = {"userName": text(one.user)}
        if one.domain:
            user["domain"] = text(one.domain)
        if one.login_time:
            user["loginTime"] = one.login_time
        yield user


def filesystems(answer: Sequence[FilesystemEntry]) -> list[Document]:
    """Convert guest-get-fsinfo to items of a file system list."""
    return list(_filesystems(answer[:MOST_ITEMS]))


def _filesystems(answer: Sequence[FilesystemEntry]) -> Iterator[Document]:
    for one in answer:
        disks = [
            {"serial": text(disk.serial), "busType": text(disk.bus_type)}
            for disk in one.disk[:MOST_ITEMS]
        ]
        entries = [{name: value for name, value in disk.items() if value} for disk in disks]
        filesystem: Document = {
            "diskName": text(one.name),
            "mountPoint": text(one.mountpoint),
            "fileSystemType": text(one.type),
            "usedBytes": one.used_bytes,
            "totalBytes": one.total_bytes,
        }
        yield filesystem | ({"disk": entries} if entries else {})
