"""The real server, empty, in this process: what every loop's machinery is tested against."""

import pytest
from lightkube.models.core_v1 import Namespace

from corral.api.request import User
from corral.client.client import Client
from corral.client.transport import InProcess
from corral.server.app import ApiServer
from corral.store import Store

ADMIN = User(name="kubernetes-admin", groups=("system:masters",))


@pytest.fixture
async def store():
    made = Store.in_memory()
    yield made
    await made.close()


@pytest.fixture
async def server(store):
    made = ApiServer(store)
    client = Client(InProcess(made.handle, ADMIN))
    await client.create(Namespace, {"metadata": {"name": "default"}})
    return made


@pytest.fixture
def client(server):
    return Client(InProcess(server.handle, ADMIN))
