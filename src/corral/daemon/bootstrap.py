"""Objects that every cluster has: namespaces, priority classes, roles, CDI's configuration.

Those that are damaged on disk can be neither read nor created: the manager starts without them.
"""

from contextlib import suppress

import structlog
from lightkube.models.core_v1 import Namespace
from lightkube.models.scheduling_v1 import PriorityClass

from corral.api.errors import AlreadyExists, ApiError, StoreReadError
from corral.api.kinds.cdi import cdiconfig
from corral.api.kinds.cdi.cdiconfig import CDIConfig
from corral.api.kinds.priority_class import SYSTEM
from corral.api.object import Key
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.cluster.system_namespaces import NAMESPACES
from corral.daemon.rbac import reconcile_rbac
from corral.server.app import ApiServer
from corral.server.authn.authenticator import ADMINISTRATOR

log = structlog.get_logger()


async def create_defaults(server: ApiServer) -> None:
    """Create the missing ones; existing ones may have been changed and stay."""
    await make_namespaces(server)
    await make_priority_classes(server)
    await reconcile_rbac(Client(InProcess(server.handle, ADMINISTRATOR)))


async def make_namespaces(server: ApiServer) -> None:
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    present = {each.metadata.name for each in (await client.list(Namespace)).items if each.metadata}
    for name in NAMESPACES:
        if name not in present:
            with suppress(AlreadyExists, StoreReadError):
                await client.create(Namespace, {"metadata": {"name": name}})


async def make_priority_classes(server: ApiServer) -> None:
    """Create Kubernetes' two system priority classes."""
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    for name, (value, description) in SYSTEM.items():
        document = {"metadata": {"name": name}, "value": value, "description": description}
        with suppress(AlreadyExists, StoreReadError):
            await client.create(PriorityClass, document)


async def publish_upload_url(server: ApiServer, url: str, authority: str) -> None:
    """Write the upload URL into CDI's configuration, where clients look for it.

    If a webhook or policy refuses, uploads need the URL by option; the API starts all the same.
    """
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    change = cdiconfig.status_patch(url, authority)
    try:
        with suppress(AlreadyExists):
            await client.create(CDIConfig, {"metadata": {"name": cdiconfig.NAME}})
        await client.patch(CDIConfig, Key("", cdiconfig.NAME), change, subresource="status")
    except ApiError as error:
        log.warning("upload URL not published", error=str(error))
