"""Volumes of a VirtualMachine by the flags of ``corral create vm``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.api.object import Document
from corral.cli.virtctl.create.names import random_name
from corral.cli.virtctl.create.parameters import Parameters, parameters, prefixed, wrong

CONTAINER_DISK = "volume-containerdisk"
CLAIM = "volume-pvc"
IMPORT = "volume-import"
SYSPREP = "volume-sysprep"
_COMMON = "type name size bootorder"


@dataclass(slots=True)
class Disks:
    """What a machine is given: volumes, disks with a place in the boot order, DataVolumes."""

    vm: str
    volumes: list[Document] = field(default_factory=list)
    disks: list[Document] = field(default_factory=list)
    templates: list[Document] = field(default_factory=list)

    def add(self, flag: str, name: str, source: Document, boot_order: int | None = None) -> None:
        """Add a volume.  Raises Problem for a name or a place that is taken."""
        if any(volume["name"] == name for volume in self.volumes):
            wrong(flag, f"there is already a volume with name '{name}'")
        self.volumes.append({"name": name, **source})
        if boot_order is None:
            return
        if boot_order == 0:
            wrong(flag, "bootorder must be greater than 0")
        if any(disk["bootOrder"] == boot_order for disk in self.disks):
            wrong(flag, f"bootorder {boot_order} was specified multiple times")
        self.disks.append({"name": name, "bootOrder": boot_order, "disk": {}})

    @property
    def boot_volume(self) -> Document | None:
        """The volume that the machine starts from: the first in the boot order, or at all."""
        if self.disks:
            first = min(self.disks, key=lambda disk: disk["bootOrder"])["name"]
            return next(volume for volume in self.volumes if volume["name"] == first)
        return next(iter(self.volumes), None)


def add_container_disks(disks: Disks, texts: Sequence[str]) -> None:
    """``--volume-containerdisk``: disk images that are shipped in container images."""
    for number, text in enumerate(texts):
        said = parameters(CONTAINER_DISK, text, "src name bootorder")
        name = said.get("name") or f"{disks.vm}-containerdisk-{number}"
        source = {"containerDisk": {"image": said.need("src")}}
        disks.add(CONTAINER_DISK, name, source, said.number("bootorder"))


def add_claims(disks: Disks, texts: Sequence[str]) -> None:
    """``--volume-pvc``: claims that are there."""
    for text in texts:
        said = parameters(CLAIM, text, "src name bootorder")
        namespace, name = prefixed(CLAIM, said.need("src"))
        if namespace:
            wrong(CLAIM, f"not allowed to specify namespace of PVC '{name}'")
        source = {"persistentVolumeClaim": {"claimName": name}}
        disks.add(CLAIM, said.get("name") or name, source, said.number("bootorder"))


def add_imports(disks: Disks, texts: Sequence[str]) -> None:
    """``--volume-import``: DataVolumes that are made, and filled, for the machine."""
    for text in texts:
        kind = dict(each.partition(":")[::2] for each in text.split(",")).get("type", "")
        if not kind:
            wrong(IMPORT, "type must be specified")
        if kind not in _SOURCES:
            known = ", ".join(_SOURCES)
            wrong(IMPORT, f'unknown source type "{kind}", supported values are: {known}')
        known, source_of = _SOURCES[kind]
        said = parameters(IMPORT, text, f"{_COMMON} {known}")
        name = said.get("name") or random_name("imported-volume")
        spec = {**source_of(said), "storage": _storage(said, needed=kind not in _SIZED)}
        disks.templates.append({"metadata": {"name": name}, "spec": spec})
        disks.add(IMPORT, name, {"dataVolume": {"name": name}}, said.number("bootorder"))


def _storage(said: Parameters, *, needed: bool) -> Document:
    size = said.quantity("size")
    if not size and needed:
        wrong(IMPORT, "size must be specified")
    return {"resources": {"requests": {"storage": size}}} if size else {}


def _blank(_said: Parameters) -> Document:
    return {"source": {"blank": {}}}


def _http(said: Parameters) -> Document:
    source = {
        "url": said.need("url"),
        "secretRef": said.get("secretref"),
        "certConfigMap": said.get("certconfigmap"),
        "extraHeaders": said.several("extraheaders"),
        "secretExtraHeaders": said.several("secretextraheaders"),
    }
    return {"source": {"http": {name: value for name, value in source.items() if value}}}


def _registry(said: Parameters) -> Document:
    source = {
        "url": said.need("url"),
        "pullMethod": said.get("pullmethod"),
        "secretRef": said.get("secretref"),
        "certConfigMap": said.get("certconfigmap"),
    }
    return {"source": {"registry": {name: value for name, value in source.items() if value}}}


def _claim(said: Parameters) -> Document:
    namespace, name = prefixed(IMPORT, said.need("src"))
    if not namespace:
        wrong(IMPORT, f"namespace of PVC '{name}' must be specified")
    return {"source": {"pvc": {"namespace": namespace, "name": name}}}


def _data_source(said: Parameters) -> Document:
    namespace, name = prefixed(IMPORT, said.need("src"))
    place = {"namespace": namespace} if namespace else {}
    return {"sourceRef": {"kind": "DataSource", "name": name, **place}}


_SOURCES: Mapping[str, tuple[str, Callable[[Parameters], Document]]] = {
    "blank": ("", _blank),
    "http": ("url secretref certconfigmap extraheaders secretextraheaders", _http),
    "registry": ("url pullmethod secretref certconfigmap", _registry),
    "pvc": ("src", _claim),
    "ds": ("src", _data_source),
}
"""Kinds of imports: their parameters, and the source of the DataVolume."""
_SIZED = frozenset({"pvc", "ds"})
"""Kinds of imports that have a size of their own."""


def add_sysprep(disks: Disks, text: str) -> None:
    """``--volume-sysprep``: the answer file of an unattended Windows installation."""
    said = parameters(SYSPREP, text, "src type")
    namespace, name = prefixed(SYSPREP, said.need("src"))
    if namespace:
        wrong(SYSPREP, f"not allowed to specify namespace of ConfigMap or Secret '{name}'")
    match said.get("type") or "configMap":
        case "configMap":
            source = {"configMap": {"name": name}}
        case "secret":
            source = {"secret": {"name": name}}
        case other:
            wrong(
                SYSPREP,
                f'invalid source type "{other}", supported values are: configMap, secret',
            )
    disks.add(SYSPREP, "sysprepdisk", {"sysprep": source})
