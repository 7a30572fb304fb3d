"""CDIConfig: the configuration of imports and uploads (CDI's cdi.kubevirt.io/v1beta1)."""

from typing import ClassVar

import msgspec

from corral.api.kinds.cdi.datavolume import GROUP
from corral.api.object import AnyFields, Object, Struct

NAME = "config"
"""The name of the one CDIConfig."""


class FilesystemOverhead(Struct, kw_only=True):
    """The share of a volume that is overhead of its file system.

    global_: the share of classes without one of their own.
    storage_class: the share by class name.
    """

    global_: str = msgspec.field(default="", name="global")
    storage_class: dict[str, str] = {}


class CDIConfigSpec(Struct, kw_only=True):
    """Desired configuration; only the URL has an effect in this version.

    upload_proxy_url_override: URL for uploads, instead of the server's own.
    feature_gates: enabled feature gates.
    """

    upload_proxy_url_override: str | None = msgspec.field(
        default=None, name="uploadProxyURLOverride"
    )
    feature_gates: list[str] = []


class CDIConfigStatus(Struct, kw_only=True):
    """Configuration in effect, for clients.

    upload_proxy_url: URL for uploads.
    upload_proxy_ca: CA certificate of that URL (PEM).
    filesystem_overhead: the share of a volume that is overhead of its file system.
    scratch_space_storage_class: storage class of temporary files.
    preallocation: whether the space of disks is allocated beforehand.
    """

    upload_proxy_url: str = msgspec.field(default="", name="uploadProxyURL")
    upload_proxy_ca: str = msgspec.field(default="", name="uploadProxyCA")
    filesystem_overhead: FilesystemOverhead | None = None
    scratch_space_storage_class: str = ""
    preallocation: bool = False


class CDIConfig(Object, kw_only=True):
    """The configuration of imports and uploads; there is one, named config.

    spec: desired configuration.
    status: configuration in effect.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "CDIConfig"

    spec: CDIConfigSpec = msgspec.field(default_factory=CDIConfigSpec)
    status: CDIConfigStatus = msgspec.field(default_factory=CDIConfigStatus)


def status_patch(url: str, authority: str) -> dict[str, AnyFields]:
    """Return a patch of the status of the CDIConfig; volumes are files, so there is no overhead."""
    status = CDIConfigStatus(
        upload_proxy_url=url,
        upload_proxy_ca=authority,
        filesystem_overhead=FilesystemOverhead(global_="0"),
    )
    return {"status": msgspec.to_builtins(status)}
