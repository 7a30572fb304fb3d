"""Paths that are no resources: health, version, discovery, OpenAPI, metrics."""

from collections.abc import Mapping

from corral import __version__
from corral.api.discovery import Discovery, api_versions, content_type
from corral.api.encoding import encode
from corral.api.errors import NotFound
from corral.api.kinds.kubevirt.installation import REPORTED_VERSION
from corral.api.kinds.table import KindTable
from corral.api.request import Request, Response, User
from corral.metrics import Registry
from corral.pki import SigningKey
from corral.server.audit import Audit
from corral.server.authn import oidc_discovery
from corral.server.authz import Authorizer
from corral.server.discovery import health
from corral.server.discovery.openapi import Schemas
from corral.server.metrics.custom import Adapter
from corral.server.node_proxy import vmi_subresources
from corral.server.request import accept
from corral.server.request.call import json_response
from corral.server.response.etag import cached
from corral.server.response.plain_text import not_found
from corral.server.response.pretty import indented
from corral.server.subresources.catalog import NAMELESS, SUBRESOURCES
from corral.server.subresources.subresources import is_embedded
from corral.store import Store

JSON = "application/json"
PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Paths that need no credentials; nor do ``KUBEVIRT_PATHS``."""
KUBEVIRT_PATHS: Mapping[str, str] = {
    f"/apis/{vmi_subresources.GROUP}/{version}/{name}": name
    for version in vmi_subresources.VERSIONS
    for name in ("version", "healthz", "guestfs")
}
"""Paths that KubeVirt serves in the group of its subresources."""

VERSION: Mapping[str, str] = {
    "major": "1",
    "minor": "37",
    "gitVersion": f"v1.37.0+corral-{__version__}",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
"""The version of the Kubernetes API; clients warn of one far from their own."""


_INDEX = ("", "/index.html")
_PATHS = (
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/version",
    *oidc_discovery.PATHS,
    *health.PATHS,
)
_UNAUTHENTICATED = PUBLIC | KUBEVIRT_PATHS.keys()


class Documents:
    """Serves paths that are no resources."""

    def __init__(
        self,
        kinds: KindTable,
        store: Store,
        metrics: Registry,
        authorizer: Authorizer,
        adapter: Adapter | None = None,
        *,
        account_key: SigningKey,
        audit: Audit | None = None,
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._account_key = account_key
        self._audit = audit
        self._metrics = metrics
        listed = tuple(
            each
            for each in (*SUBRESOURCES, *NAMELESS)
            if each.group != vmi_subresources.GROUP or is_embedded(kinds)
        )
        self._kubevirt_paths = KUBEVIRT_PATHS if is_embedded(kinds) else {}
        self._discovery = Discovery(kinds, listed)
        if adapter is not None:
            listed += tuple(adapter.resources(kinds))
            self._discovery = Discovery(kinds, listed, tuple(adapter.groups()))
        self._schemas = Schemas(kinds)

    def serves(self, path: str) -> bool:
        """Return whether a path that looks like a resource's is none."""
        return path.rstrip("/") in self._kubevirt_paths

    async def answer(self, request: Request, user: User) -> Response:
        """Respond; unknown paths are a plain 404.  Raises Unauthorized and Forbidden."""
        path = request.path.rstrip("/")
        head = path.lstrip("/").partition("/")[0]
        if not {path, f"/{head}"} & _UNAUTHENTICATED:
            self._authorizer.admit_path(request, user, path)
        if request.method not in ("GET", "HEAD"):
            return not_found()
        if path == "/metrics":
            return await self._metrics_response(request)
        if head == "openapi":
            return await self._schemas.answer(path.removeprefix("/openapi"), request) or not_found()
        return self._find(head, path, request, user) or not_found()

    def _find(self, head: str, path: str, request: Request, user: User) -> Response | None:
        match head:
            case _ if head in health.ROOTS:
                fault = self._audit.fault if self._audit is not None else ""
                return health.answer(path, request, user, self._store, audit_fault=fault)
            case _ if path in _INDEX:
                paths = {*_PATHS, *self._discovery.paths()}
                return json_response(indented(encode({"paths": sorted(paths)})))
            case "version" if path == "/version":
                return json_response(indented(encode(dict(VERSION))))
            case ".well-known" | "openid" if path in oidc_discovery.PATHS:
                return oidc_discovery.answer(self._account_key, request)
            case "apis" if path in self._kubevirt_paths:
                return kubevirt(KUBEVIRT_PATHS[path])
            case _:
                return discovered(self._discovery, path, request)

    async def _metrics_response(self, request: Request) -> Response:
        body, media_type = await self._metrics.text(request.headers.get("accept", ""))
        return Response(headers=[("content-type", media_type)], body=body)


def discovered(discovery: Discovery, path: str, request: Request) -> Response | None:
    """Return a discovery document in the form that the client prefers, or None."""
    header = request.headers.get("accept", "")
    if (aggregated := accept.aggregated(header)) is not None:
        version, as_yaml = aggregated.get("v"), aggregated.type == accept.YAML
        document = discovery.find(path, version)
        if document is not None:
            return cached(document, content_type(version), request, as_yaml=as_yaml)
    if path == "/api":
        address = request.headers.get("host", "")
        return json_response(encode(api_versions(address)))
    document = discovery.find(path)
    if document is None:
        return None
    return cached(
        document,
        JSON,
        request,
        as_yaml=accept.prefers_yaml(header),
        as_protobuf=accept.prefers_protobuf(header),
    )


def kubevirt(name: str) -> Response:
    """Return KubeVirt's version or health, for its clients."""
    if name == "version":
        version = {key: value for key, value in VERSION.items() if key not in ("major", "minor")}
        return json_response(encode(version | {"gitVersion": REPORTED_VERSION}))
    if name == "healthz":
        return json_response(encode({"apiserver": {"connectivity": "ok"}}))
    missing = NotFound("guestfs is not supported: corral has no image of libguestfs")
    return json_response(encode(missing.status()), status=missing.code)
