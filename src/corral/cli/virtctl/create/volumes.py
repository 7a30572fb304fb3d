"""Volumes of a VirtualMachine, from the flags of ``corral create vm``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.api.object import Document
from corral.cli.virtctl.create.names import random_name
from corral.cli.virtctl.create.parameters import Parameters, fail, parameters, prefixed

CONTAINER_DISK = "volume-containerdisk"
CLAIM = "volume-pvc"
IMPORT = "volume-import"
SYSPREP = "volume-sysprep"
_COMMON = "type name size bootorder"


@dataclass(slots=True)
class Disks:
    """The volumes, the disks with a boot order, and the DataVolume templates of a VM."""

    vm: str
    volumes: list[Document] = field(default_factory=list)
    disks: list[Document] = field(default_factory=list)
    templates: list[Document] = field(default_factory=list)

    def add(self, flag: str, name: str, source: Document, boot_order: int | None = None) -> None:
        """Add a volume.  Raises Problem for a duplicate name or boot order."""
        if any(volume["name"] == name for volume in self.volumes):
            fail(flag, f"there is already a volume with name '{name}'")
        self.volumes.append({"name": name, **source})
        if boot_order is None:
            return
        if boot_order == 0:
            fail(flag, "bootorder must be greater than 0")
        if any(disk["bootOrder"] == boot_order for disk in self.disks):
            fail(flag, f"bootorder {boot_order} was specified multiple times")
        self.disks.append({"name": name, "bootOrder": boot_order, "disk": {}})

    @property
    def boot_volume(self) -> Document | None:
        """The volume that the guest boots from: the first in the boot order, else the first."""
        if self.disks:
            first = min(self.disks, key=lambda disk: disk["bootOrder"])["name"]
            return next(volume for volume in self.volumes if volume["name"] == first)
        return next(iter(self.volumes), None)


def add_container_disks(disks: Disks, texts: Sequence[str]) -> None:
    """Add the volumes of ``--volume-containerdisk``."""
    for number, text in enumerate(texts):
        values = parameters(CONTAINER_DISK, text, "src name bootorder")
        name = values.get("name") or f"{disks.vm}-containerdisk-{number}"
        source = {"containerDisk": {"image": values.require("src")}}
        disks.add(CONTAINER_DISK, name, source, values.number("bootorder"))


def add_claims(disks: Disks, texts: Sequence[str]) -> None:
    """Add the volumes of ``--volume-pvc``: existing claims."""
    for text in texts:
        values = parameters(CLAIM, text, "src name bootorder")
        namespace, name = prefixed(CLAIM, values.require("src"))
        if namespace:
            fail(CLAIM, f"not allowed to specify namespace of PVC '{name}'")
        source = {"persistentVolumeClaim": {"claimName": name}}
        disks.add(CLAIM, values.get("name") or name, source, values.number("bootorder"))


def add_imports(disks: Disks, texts: Sequence[str]) -> None:
    """Add the volumes of ``--volume-import``: DataVolumes to create with the VM."""
    for text in texts:
        kind = dict(each.partition(":")[::2] for each in text.split(",")).get("type", "")
        if not kind:
            fail(IMPORT, "type must be specified")
        if kind not in _SOURCES:
            kinds = ", ".join(_SOURCES)
            fail(IMPORT, f'unknown source type "{kind}", supported values are: {kinds}')
        names, source_of = _SOURCES[kind]
        values = parameters(IMPORT, text, f"{_COMMON} {names}")
        name = values.get("name") or random_name("imported-volume")
        spec = {**source_of(values), "storage": _storage(values, needed=kind not in _SIZED)}
        disks.templates.append({"metadata": {"name": name}, "spec": spec})
        disks.add(IMPORT, name, {"dataVolume": {"name": name}}, values.number("bootorder"))


def _storage(values: Parameters, *, needed: bool) -> Document:
    size = values.quantity("size")
    if not size and needed:
        fail(IMPORT, "size must be specified")
    return {"resources": {"requests": {"storage": size}}} if size else {}


def _blank(_values: Parameters) -> Document:
    return {"source": {"blank": {}}}


def _http(values: Parameters) -> Document:
    source = {
        "url": values.require("url"),
        "secretRef": values.get("secretref"),
        "certConfigMap": values.get("certconfigmap"),
        "extraHeaders": values.list_("extraheaders"),
        "secretExtraHeaders": values.list_("secretextraheaders"),
    }
    return {"source": {"http": {name: value for name, value in source.items() if value}}}


def _registry(values: Parameters) -> Document:
    source = {
        "url": values.require("url"),
        "pullMethod": values.get("pullmethod"),
        "secretRef": values.get("secretref"),
        "certConfigMap": values.get("certconfigmap"),
    }
    return {"source": {"registry": {name: value for name, value in source.items() if value}}}


def _claim(values: Parameters) -> Document:
    namespace, name = prefixed(IMPORT, values.require("src"))
    if not namespace:
        fail(IMPORT, f"namespace of PVC '{name}' must be specified")
    return {"source": {"pvc": {"namespace": namespace, "name": name}}}


def _data_source(values: Parameters) -> Document:
    namespace, name = prefixed(IMPORT, values.require("src"))
    namespace_field = {"namespace": namespace} if namespace else {}
    return {"sourceRef": {"kind": "DataSource", "name": name, **namespace_field}}


_SOURCES: Mapping[str, tuple[str, Callable[[Parameters], Document]]] = {
    "blank": ("", _blank),
    "http": ("url secretref certconfigmap extraheaders secretextraheaders", _http),
    "registry": ("url pullmethod secretref certconfigmap", _registry),
    "pvc": ("src", _claim),
    "ds": ("src", _data_source),
}
"""Kinds of imports: their parameters, and the source of the DataVolume."""
_SIZED = frozenset({"pvc", "ds"})
"""Kinds of imports whose size is that of their source."""


def add_sysprep(disks: Disks, text: str) -> None:
    """Add the volume of ``--volume-sysprep``: the answer file of a Windows installation."""
    values = parameters(SYSPREP, text, "src type")
    namespace, name = prefixed(SYSPREP, values.require("src"))
    if namespace:
        fail(SYSPREP, f"not allowed to specify namespace of ConfigMap or Secret '{name}'")
    match values.get("type") or "configMap":
        case "configMap":
            source = {"configMap": {"name": name}}
        case "secret":
            source = {"secret": {"name": name}}
        case other:
            fail(
                SYSPREP,
                f'invalid source type "{other}", supported values are: configMap, secret',
            )
    disks.add(SYSPREP, "sysprepdisk", {"sysprep": source})
