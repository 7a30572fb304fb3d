"""Names of OpenAPI schemas, operations and tags."""

from functools import cache
from typing import Final

import msgspec

from corral.api.kind import GroupVersion, Kind

REFERENCE: Final = "#/components/schemas/"
GVK: Final = "x-kubernetes-group-version-kind"


def path_of(group_version: GroupVersion) -> str:
    """Return the path of a group and version, without the leading slash."""
    prefix = "apis" if group_version.group else "api"
    return f"{prefix}/{group_version}"


def is_native(view: type[msgspec.Struct]) -> bool:
    """Report whether a Struct is one of Kubernetes' own types."""
    return view.__module__.startswith("lightkube.")


def kind_name(kind: Kind, group_version: GroupVersion) -> str:
    """Return the name of a kind's schema."""
    view = kind.view_of(group_version.version)
    if kind.schemas is None and is_native(view):
        return struct_name(view)
    reversed_group = ".".join(reversed(group_version.group.split(".")))
    return f"{reversed_group}.{group_version.version}.{kind.name}"


@cache
def struct_name(view: type[msgspec.Struct]) -> str:
    """Return the name of a Struct's schema; for a native type the one in Kubernetes' OpenAPI.

    lightkube's modules are named after Kubernetes' groups and versions.  Names of our Structs have
    no module, because clients see them; a test holds that they are unique.
    """
    if not is_native(view):
        return f"io.kubevirt.{view.__name__}"
    group, _, version = view.__module__.rpartition(".")[2].rpartition("_")
    package = "apimachinery.pkg.apis" if group == "meta" else "api"
    return f"io.k8s.{package}.{group}.{version}.{view.__name__}"


def gvk(group_version: GroupVersion, kind: str) -> dict[str, str]:
    return {"group": group_version.group, "version": group_version.version, "kind": kind}


def tag(group_version: GroupVersion) -> str:
    """Return the tag of the operations of a group and version: ``kubevirtIo_v1``."""
    first, *others = _words(group_version.group)
    return "".join((first, *map(str.capitalize, others), "_", group_version.version))


def group_id(group_version: GroupVersion) -> str:
    """Return a group and version as a part of operation ids: ``KubevirtIoV1``."""
    words = (*_words(group_version.group), group_version.version)
    return "".join(word[0].upper() + word[1:] for word in words)


def _words(group: str) -> list[str]:
    return group.removesuffix(".k8s.io").replace("-", ".").split(".") if group else ["core"]
