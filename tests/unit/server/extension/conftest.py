"""An API server that records requests: the embedded one, in process in place of HTTPS."""

import pytest

from corral.client.client import Client
from corral.client.transport import InProcess
from corral.server.authn.authenticator import ADMINISTRATOR


@pytest.fixture
def client(ask):
    """A client of a server with the namespace ``default``."""
    return Client(InProcess(ask.server.handle, ADMINISTRATOR))
