"""CDIConfig: how the import of disks is set up (CDI's cdi.kubevirt.io/v1beta1)."""

from typing import ClassVar

import msgspec

from corral.api.kinds.cdi.datavolume import GROUP
from corral.api.object import AnyFields, Object, Struct

NAME = "config"
"""The name of the one CDIConfig that there is."""


class FilesystemOverhead(Struct, kw_only=True):
    """The share of a volume that is not for its disk.

    global_: of every class that is not named.
    storage_class: by the class's name.
    """

    global_: str = msgspec.field(default="", name="global")
    storage_class: dict[str, str] = {}


class CDIConfigSpec(Struct, kw_only=True):
    """What was asked for; nothing of it but the address has an effect in this version.

    upload_proxy_url_override: where clients are to upload to, in place of the server's own address.
    feature_gates: what is tried before it is ready for all.
    """

    upload_proxy_url_override: str | None = msgspec.field(
        default=None, name="uploadProxyURLOverride"
    )
    feature_gates: list[str] = []


class CDIConfigStatus(Struct, kw_only=True):
    """What clients need to know.

    upload_proxy_url: where clients upload to.
    upload_proxy_ca: the authority (PEM) that has signed who answers there.
    filesystem_overhead: the share of a volume that is not for its disk.
    scratch_space_storage_class: where temporary files go.
    preallocation: whether all the space of disks is taken beforehand.
    """

    upload_proxy_url: str = msgspec.field(default="", name="uploadProxyURL")
    upload_proxy_ca: str = msgspec.field(default="", name="uploadProxyCA")
    filesystem_overhead: FilesystemOverhead | None = None
    scratch_space_storage_class: str = ""
    preallocation: bool = False


class CDIConfig(Object, kw_only=True):
    """How the import of disks is set up; there is one, and its name is config.

    spec: what was asked for.
    status: what clients need to know.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "CDIConfig"

    spec: CDIConfigSpec = msgspec.field(default_factory=CDIConfigSpec)
    status: CDIConfigStatus = msgspec.field(default_factory=CDIConfigStatus)


def settled(url: str, authority: str) -> dict[str, AnyFields]:
    """The status of a CDIConfig: disks lie on no file system of their own, so nothing is lost."""
    status = CDIConfigStatus(
        upload_proxy_url=url,
        upload_proxy_ca=authority,
        filesystem_overhead=FilesystemOverhead(global_="0"),
    )
    return {"status": msgspec.to_builtins(status)}
