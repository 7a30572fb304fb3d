"""Discovery documents: the served groups, versions and kinds.

There is the legacy form, a document for each group and version, and the aggregated form, two
documents for all (apidiscovery.k8s.io).
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from corral.api.encoding import encode
from corral.api.etag import Tagged
from corral.api.kind import GroupVersion, Kind
from corral.api.kinds.table import KindTable
from corral.api.object import Document
from corral.api.subresources import Subresource

AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")
CHANGE_VERBS: Final = ("get", "patch", "update")


def content_type(version: str) -> str:
    """Return the media type of an aggregated document; clients check its parameters."""
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


class Discovery:
    """Discovery of a table of kinds, which may change at any time.

    subresources: those besides ``status`` and ``scale``.
    groups: are listed even if they are empty.
    """

    def __init__(
        self,
        kinds: KindTable,
        subresources: Sequence[Subresource] = (),
        groups: Sequence[GroupVersion] = (),
    ) -> None:
        self._kinds = kinds
        self._subresources = tuple(subresources)
        self._empty_groups = tuple(groups)
        self._cache: dict[tuple[str, str], Tagged] = {}
        self._changes = kinds.changes

    def find(self, path: str, version: str = "") -> Tagged | None:
        """Return the encoded document at a path, cached until kinds change; None if there is none.

        It has the legacy form, or with a ``version`` the aggregated one.
        """
        if self._changes != self._kinds.changes:
            self._changes = self._kinds.changes
            self._cache.clear()
        cached = self._cache.get((path, version))
        if cached is None:
            found = self.aggregated(path, version) if version else self.document(path)
            if found is None:
                return None
            cached = self._cache[path, version] = Tagged.of(encode(found))
        return cached

    def paths(self) -> Iterator[str]:
        """Yield the paths of all legacy documents."""
        yield from ("/api", "/apis")
        for group, versions in self._groups().items():
            root = f"/apis/{group}" if group else "/api"
            yield root
            yield from (f"{root}/{version}" for version in versions)

    def document(self, path: str) -> Document | None:
        """Return the legacy document at a path; None if there is none."""
        match path.strip("/").split("/"):
            case ["api"]:
                return api_versions()
            case ["apis"]:
                groups = [self._group(group) for group in self._groups() if group]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["api", "v1"]:
                return self._resources(GroupVersion("", "v1"))
            case ["apis", group] if group in self._groups():
                return {"kind": "APIGroup", "apiVersion": "v1"} | self._group(group)
            case ["apis", group, version] if version in self._groups().get(group, ()):
                return self._resources(GroupVersion(group, version))
            case _:
                return None

    def aggregated(self, path: str, version: str = "v2") -> Document | None:
        """Return the aggregated document of ``/api`` (the core group) or ``/apis`` (all others)."""
        if path not in ("/api", "/apis"):
            return None
        items = []
        for group, versions in self._groups().items():
            if (group == "") == (path == "/api"):
                items.append(
                    {
                        "metadata": {"name": group} if group else {},
                        "versions": [self._version(GroupVersion(group, name)) for name in versions],
                    }
                )
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }

    def _groups(self) -> dict[str, list[str]]:
        """Return the versions of each group, the preferred one first."""
        groups: dict[str, dict[str, None]] = {}
        for group, version in self._kinds.group_versions():
            groups.setdefault(group, {})[version] = None
        for each in self._subresources:
            groups.setdefault(each.group, {})[each.version] = None
        for group, version in self._empty_groups:
            groups.setdefault(group, {})[version] = None
        return {group: list(versions) for group, versions in groups.items()}

    def _group(self, group: str) -> Document:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for version in self._groups()[group]
        ]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _subresources_at(self, group_version: GroupVersion, plural: str) -> Iterator[Subresource]:
        """Yield the subresources of a kind, those of its row first."""
        kind = self._kinds.find(*group_version, plural)
        if kind is not None:
            for name in kind.updates:
                yield _implied(kind, group_version, name, (*group_version, kind.name))
        if kind is not None and kind.scale is not None:
            yield _implied(kind, group_version, "scale", ("autoscaling", "v1", "Scale"))
        for each in self._subresources:
            if (each.group, each.version, each.plural) == (*group_version, plural):
                yield each

    def _orphans(self, group_version: GroupVersion) -> dict[str, Subresource]:
        """Return subresources by plural, of kinds that their own group does not serve."""
        return {
            each.plural: each
            for each in self._subresources
            if (each.group, each.version) == group_version
            and self._kinds.find(*group_version, each.plural) is None
        }

    def _resources(self, group_version: GroupVersion) -> Document:
        resources: list[Document] = []
        for kind in self._kinds.served(group_version):
            resources.append(_resource(kind))
            resources += map(_legacy_subresource, self._subresources_at(group_version, kind.plural))
        for plural in self._orphans(group_version):
            resources += map(_legacy_subresource, self._subresources_at(group_version, plural))
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": str(group_version),
            "resources": resources,
        }

    def _version(self, group_version: GroupVersion) -> Document:
        resources = []
        for kind in self._kinds.served(group_version):
            resource: Document = {
                "resource": kind.plural,
                "responseKind": _gvk((*group_version, kind.name)),
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "singularResource": kind.singular,
                "verbs": list(kind.verbs),
            }
            resources.append(
                resource | _names(kind) | self._subresources_of(group_version, kind.plural)
            )
        for plural, each in self._orphans(group_version).items():
            resource = {
                "resource": plural,
                "scope": "Namespaced" if each.namespaced else "Cluster",
                "singularResource": "",
                "verbs": [],
            }
            if not each.name:
                own = {"responseKind": _gvk(each.response_kind), "verbs": list(each.verbs)}
                resources.append(resource | own)
                continue
            resources.append(resource | self._subresources_of(group_version, plural))
        return {"version": group_version.version, "resources": resources, "freshness": "Current"}

    def _subresources_of(self, group_version: GroupVersion, plural: str) -> Document:
        subresources = [
            {
                "subresource": each.name,
                "responseKind": _gvk(each.response_kind),
                "verbs": list(each.verbs),
            }
            for each in self._subresources_at(group_version, plural)
        ]
        return {"subresources": subresources} if subresources else {}


def _implied(
    kind: Kind, group_version: GroupVersion, name: str, response_kind: tuple[str, str, str]
) -> Subresource:
    return Subresource(
        group=group_version.group,
        version=group_version.version,
        plural=kind.plural,
        name=name,
        response_kind=response_kind,
        verbs=CHANGE_VERBS,
        namespaced=kind.namespaced,
    )


def api_versions(address: str = "") -> Document:
    """Return the legacy document of ``/api``; ``address`` is the server's ``host:port``."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}] if address else []
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def _resource(kind: Kind) -> Document:
    resource: Document = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(kind.verbs),
    }
    return resource | _names(kind) | _storage_hash(kind)


def _storage_hash(kind: Kind) -> Document:
    """Return the hash of the storage version, by which clients see that two resources are one.

    A custom resource has it only if its stored version is served.
    """
    if not kind.is_kept and kind.stored_as is None:
        return {}
    group, version = kind.group, kind.versions[0]
    if kind.stored_as is not None:
        group = kind.stored_as[0]
    elif not version.served:
        return {}
    name = "v1" if kind.stored_as is not None else version.name
    digest = hashlib.sha256(f"{group}/{name}/{kind.name}".encode()).digest()
    return {"storageVersionHash": base64.b64encode(digest[:8]).decode()}


def _names(kind: Kind) -> Document:
    names = {"shortNames": list(kind.short), "categories": list(kind.categories)}
    return {key: value for key, value in names.items() if value}


def _legacy_subresource(each: Subresource) -> Document:
    group, version, kind = each.response_kind
    document: Document = {"name": each.path, "singularName": "", "namespaced": each.namespaced}
    if (group, version) != (each.group, each.version):
        document |= {"group": group, "version": version}
    return document | {"kind": kind, "verbs": list(each.verbs)}


def _gvk(names: tuple[str, str, str]) -> Document:
    return dict(zip(("group", "version", "kind"), names, strict=True))
