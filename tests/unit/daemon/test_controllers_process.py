"""The process of controllers alone: election, health, shutdown."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
import urllib.error
import urllib.request

import pytest
import trustme
from lightkube.models.coordination_v1 import Lease
from lightkube.models.core_v1 import ConfigMap, Namespace

from corral.api.object import Key
from corral.client.client import Client
from corral.client.kubeconfig import Kubeconfig
from corral.client.transport import InProcess
from corral.daemon.controllers_process import ControllersProcess
from corral.daemon.errors import CannotStart
from corral.reconcile.controller import Controller
from corral.reconcile.leader_election import LeadershipLostError, Timing
from corral.reconcile.objects import key_of
from corral.reconcile.workqueue import WorkQueue
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.transport.listener import listening
from corral.store import Store

AUTHORITY = trustme.CA()
LEASE = Key("default", "leader")
TIMING = Timing(lease=40.0, renew=30.0, retry=0.1)  # kept also by a busy host


class Recorder:
    """Controllers that record the ConfigMaps that they reconcile."""

    def __init__(self) -> None:
        self.names = asyncio.Queue[str]()

    def make(self, context):
        maps, queue = context.informers.of(ConfigMap), WorkQueue[Key]()
        maps.handle(lambda _old, new: queue.add(key_of(new)) if new is not None else None)

        async def reconcile(key: Key) -> None:
            self.names.put_nowait(key.name)

        return [Controller("maps", reconcile, queue=queue, sources=(maps,))]


class Running:
    """A process that runs in a task; ``health`` is its URL."""

    def __init__(self, process: ControllersProcess) -> None:
        self._announced = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(process.run(self._announced.set_result))

    async def health(self) -> str:
        await asyncio.wait({self.task, self._announced}, return_when=asyncio.FIRST_COMPLETED)
        return self._announced.result()["health"] if self._announced.done() else await self.task

    async def get(self) -> tuple[int, str]:
        url = await self.health()

        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(url, timeout=60) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        return await asyncio.to_thread(ask)

    async def ready(self) -> None:
        """Wait until its caches are filled."""
        while (await self.get())[0] != 200:
            pass

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


@pytest.fixture(autouse=True)
def process_settings():
    """Restore the umask and the garbage collector's frozen objects: a process changes both."""
    umask = os.umask(0o022)
    yield
    os.umask(umask)
    gc.unfreeze()


@pytest.fixture
async def admin():
    store = Store.in_memory()
    server = ApiServer(store, authenticator=Authenticator({"secret": ADMINISTRATOR}))
    client = Client(InProcess(server.handle, ADMINISTRATOR))
    await client.create(Namespace, {"metadata": {"name": "default"}})
    client.server = server
    yield client
    await store.close()


@pytest.fixture
async def start(admin):
    """Return a function that starts a process for a recorder."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(tls)
    authority = AUTHORITY.cert_pem.bytes().decode()
    async with (
        asyncio.timeout(60),
        listening(App(admin.server), "127.0.0.1", 0, tls) as (_, port),
        contextlib.AsyncExitStack() as stack,
    ):

        def start(recorder, *, token="secret", lease=LEASE, bind=("127.0.0.1", 0)):
            server = f"https://127.0.0.1:{port}"
            process = ControllersProcess(
                config=Kubeconfig(server=server, token=token, authority=authority),
                make=recorder.make,
                lease=lease,
                timing=TIMING,
                bind=bind,
            )
            running = Running(process)
            stack.push_async_callback(running.end)
            return running

        yield start


async def new_map(admin, name):
    await admin.create(ConfigMap, {"metadata": {"name": name, "namespace": "default"}})


async def holder(admin):
    return (await admin.get(Lease, LEASE.name, LEASE.namespace)).spec.holderIdentity


async def test_controllers_run_until_sigterm(admin, start):
    recorder = Recorder()
    running = start(recorder)
    await running.health()
    await new_map(admin, "a")
    assert await recorder.names.get() == "a"
    await running.ready()
    assert await holder(admin)
    os.kill(os.getpid(), signal.SIGTERM)
    await running.task
    assert not await holder(admin), "another may lead at once"


async def test_one_of_two_processes_leads(admin, start):
    first, second = Recorder(), Recorder()
    leader = start(first)
    await new_map(admin, "a")
    assert await first.names.get() == "a"
    follower = start(second)
    await follower.ready()
    await new_map(admin, "b")
    assert await first.names.get() == "b"
    assert second.names.empty()
    await leader.end()
    assert {await second.names.get(), await second.names.get()} == {"a", "b"}


async def test_without_leader_election_controllers_start_at_once(admin, start):
    recorder = Recorder()
    start(recorder, lease=None)
    await new_map(admin, "a")
    assert await recorder.names.get() == "a"


async def test_a_leader_ends_when_it_loses_the_lease(admin, start):
    recorder = Recorder()
    running = start(recorder)
    await new_map(admin, "a")
    assert await recorder.names.get() == "a"
    await admin.patch(Lease, LEASE, {"spec": {"holderIdentity": "somebody"}})
    with pytest.raises(LeadershipLostError, match="somebody holds default/leader now"):
        await running.task


async def test_missing_list_rights_are_named(start):
    status, text = await start(Recorder(), token="wrong").get()
    assert status == 503
    assert "no list yet of configmaps" in text


async def test_a_port_in_use_is_an_error(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CannotStart, match="is taken by another program"):
            await start(Recorder(), bind=taken.getsockname()).task
    gc.collect()  # a coroutine that was never awaited would fail the test
