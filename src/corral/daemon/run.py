"""One process: the server, the controllers and the nodes, run until SIGTERM or SIGINT."""

from collections.abc import Callable

import structlog

from corral import __version__
from corral.aio import Background
from corral.api.errors import ApiError
from corral.api.request import User
from corral.config import Settings
from corral.controllers import SOURCES
from corral.daemon import process
from corral.daemon.api import KUBELET_CLIENT, Api
from corral.daemon.bootstrap import create_defaults
from corral.daemon.component_users import CONTROLLER, STAND_IN
from corral.daemon.controllers import controllers
from corral.daemon.damaged_objects import report_damaged
from corral.daemon.disk_reserve import Reserve
from corral.daemon.errors import CannotStart
from corral.daemon.host import Host
from corral.daemon.network import Networking
from corral.daemon.nodes import release_foreign_ranges, sync_nodes
from corral.daemon.summary import summary
from corral.metrics import Registry, process as process_metrics
from corral.node.network.netlink import NetworkError
from corral.reconcile import metrics as controller_metrics
from corral.reconcile.context import ControllerContext
from corral.server.authn.authenticator import ADMINISTRATOR
from corral.server.transport.listener import ServeError

log = structlog.get_logger()


async def run(
    settings: Settings,
    network: Networking,
    announce: Callable[[dict[str, str]], None],
) -> None:
    """Run everything until SIGTERM or SIGINT; machines run on afterwards.

    ``announce`` is called once when the API is ready, with lines for people.  Raises CannotStart.
    """
    reserve, metrics = Reserve(settings.layout.reserve), Registry(process=process_metrics)
    try:
        network.require_encryption()
    except NetworkError as error:
        raise CannotStart(error.message, error.hint) from error
    host = Host(settings, network)
    api = Api.open(settings, network, host, reserve, metrics)
    host.mount(is_first=True)
    process.prepare()
    terminated = process.termination()
    try:
        await create_defaults(api.server)
        administrator = api.client(ADMINISTRATOR)
        names, gone = await sync_nodes(settings, administrator)
        await release_foreign_ranges(settings, administrator)
        await network.prepare()
        async with api.serving() as url, Background() as tasks:
            tasks.start(reserve.keep(), name="reserve")
            context = ControllerContext(api.client(STAND_IN))

            def acting(user: User) -> ControllerContext:
                return context.with_client(api.client(user))

            own = acting(CONTROLLER)
            running = controllers(settings, network, url, context=context, own=own) if names else []
            running += host.start(
                names,
                gone,
                administrator=administrator,
                acting=acting,
                reach=api.reach,
                user=KUBELET_CLIENT,
                tasks=tasks,
                metrics=metrics,
            )
            network.start(context, host.agents, tasks)
            report_damaged(api.server, context)
            tasks.start(context.run(), name="context")
            for controller in running:
                tasks.start(controller.run(), name=controller.name)
            metrics.add("loops", controller_metrics.of(lambda: running))
            for source, make_source in SOURCES.items() if names else ():
                metrics.add(source, make_source(own))
            log.info("ready", url=url, version=__version__, nodes=names)
            announce(await summary(settings, url, host.hypervisors()) | network.summary())
            await terminated.wait()
            log.info("stopping")
        await api.store.close()
    except (ServeError, ApiError) as error:
        raise CannotStart(str(error)) from error
    finally:
        await api.store.close()
