"""What is served beside objects: health, version, discovery, OpenAPI, metrics."""

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
from corral.server.node_proxy import machines
from corral.server.request import accept
from corral.server.request.call import json_response
from corral.server.response.etag import cached
from corral.server.response.plain_text import not_found
from corral.server.response.pretty import indented
from corral.server.subresources.catalog import NAMELESS, SUBRESOURCES
from corral.store import Store

JSON = "application/json"
OPEN = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""What anybody may ask, without credentials; so may they ask ``OF_MACHINES``."""
OF_MACHINES: Mapping[str, str] = {
    f"/apis/{machines.GROUP}/{version}/{name}": name
    for version in machines.VERSIONS
    for name in ("version", "healthz", "guestfs")
}
"""What KubeVirt serves beside its subresources."""

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
"""The Kubernetes API that is spoken; clients warn of a version far from their own."""


_INDEX = ("", "/index.html")
_BESIDE = (
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/version",
    *oidc_discovery.PATHS,
    *health.PATHS,
)
_TO_ALL = OPEN | OF_MACHINES.keys()


class Documents:
    """Answers paths that are not about objects."""

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
        listed = (*SUBRESOURCES, *NAMELESS)
        self._discovery = Discovery(kinds, listed)
        if adapter is not None:
            listed += tuple(adapter.resources(kinds))
            self._discovery = Discovery(kinds, listed, tuple(adapter.groups()))
        self._schemas = Schemas(kinds)

    def serves(self, path: str) -> bool:
        """Whether a path that reads as one of an object is about none."""
        return path.rstrip("/") in OF_MACHINES

    async def answer(self, request: Request, user: User) -> Response:
        """Raises Unauthorized and Forbidden; what is not known is a plain 404."""
        path = request.path.rstrip("/")
        head = path.lstrip("/").partition("/")[0]
        if not {path, f"/{head}"} & _TO_ALL:
            self._authorizer.admit_path(request, user, path)
        if request.method not in ("GET", "HEAD"):
            return not_found()
        if path == "/metrics":
            return await self._measured(request)
        if head == "openapi":
            return await self._schemas.answer(path.removeprefix("/openapi"), request) or not_found()
        return self._find(head, path, request, user) or not_found()

    def _find(self, head: str, path: str, request: Request, user: User) -> Response | None:
        match head:
            case _ if head in health.ROOTS:
                fault = self._audit.fault if self._audit is not None else ""
                return health.answer(path, request, user, self._store, audit_fault=fault)
            case _ if path in _INDEX:
                paths = {*_BESIDE, *self._discovery.paths()}
                return json_response(indented(encode({"paths": sorted(paths)})))
            case "version" if path == "/version":
                return json_response(indented(encode(dict(VERSION))))
            case ".well-known" | "openid" if path in oidc_discovery.PATHS:
                return oidc_discovery.answer(self._account_key, request)
            case "apis" if path in OF_MACHINES:
                return _of_kubevirt(OF_MACHINES[path])
            case _:
                return self._discovered(path, request)

    def _discovered(self, path: str, request: Request) -> Response | None:
        """Discovery, in the form that the client prefers among those it accepts."""
        header = request.headers.get("accept", "")
        if (wanted := accept.aggregated(header)) is not None:
            version, wants_yaml = wanted.get("v"), wanted.type == accept.YAML
            found = self._discovery.find(path, version)
            if found is not None:
                return cached(found, content_type(version), request, wants_yaml=wants_yaml)
        if path == "/api":
            address = request.headers.get("host", "")
            return json_response(encode(api_versions(address)))
        found = self._discovery.find(path)
        if found is None:
            return None
        return cached(
            found,
            JSON,
            request,
            wants_yaml=accept.prefers_yaml(header),
            wants_protobuf=accept.prefers_protobuf(header),
        )

    async def _measured(self, request: Request) -> Response:
        body, media_type = await self._metrics.text(request.headers.get("accept", ""))
        return Response(headers=[("content-type", media_type)], body=body)


def _of_kubevirt(name: str) -> Response:
    """KubeVirt's own version and health, as its clients ask for them."""
    if name == "version":
        known = {key: value for key, value in VERSION.items() if key not in ("major", "minor")}
        return json_response(encode(known | {"gitVersion": REPORTED_VERSION}))
    if name == "healthz":
        return json_response(encode({"apiserver": {"connectivity": "ok"}}))
    missing = NotFound("guestfs is not supported: corral has no image of libguestfs")
    return json_response(encode(missing.status()), status=missing.code)
