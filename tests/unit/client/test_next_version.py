"""The next version of an object, from a watch that may end or lack it."""

from types import SimpleNamespace

import msgspec
import pytest

from corral.api.errors import Gone, NotFound
from corral.api.kinds.corral.claim import VirtualMachineClaim
from corral.client.next_version import next_version


def claim(version):
    metadata = {"name": "job", "namespace": "default", "resourceVersion": version}
    spec = {"warmPoolRef": {"name": "spares"}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, VirtualMachineClaim)


class Server:
    """Answers for the API: the events of one watch, and the object that a get finds."""

    def __init__(self, *events, error=None):
        self._events, self._error = events, error
        self.asked = {}

    async def watch(self, _kind, namespace, **options):
        self.asked = {"namespace": namespace, **options}
        for event in self._events:
            yield event
        if self._error is not None:
            raise self._error

    async def get(self, _kind, _name, _namespace):
        return claim("9")


async def test_the_watch_begins_at_the_present_version():
    server = Server(SimpleNamespace(type="MODIFIED", object=claim("2")))
    found = await next_version(server, claim("1"))
    assert found.metadata.resource_version == "2"
    assert server.asked == {
        "namespace": "default",
        "resource_version": "1",
        "fields": "metadata.name=job",
    }


@pytest.mark.parametrize("error", [None, Gone("too old")])
async def test_the_present_version_is_read_if_the_watch_ends(error):
    found = await next_version(Server(error=error), claim("1"))
    assert found.metadata.resource_version == "9"


async def test_a_deleted_object_has_no_next_version():
    with pytest.raises(NotFound, match="VirtualMachineClaim job has been deleted"):
        await next_version(Server(SimpleNamespace(type="DELETED", object=claim("2"))), claim("1"))
