"""The machine network is made, found again, damaged and mended: as root, and as anybody."""

import pytest
from tests.e2e.network.test_sessions import play

__all__ = ["play"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_the_machine_network_repairs_itself_serves_ports_and_leaves_nothing(play):
    saw = play("machine_session")
    assert saw["refused"] == ["", "another program has it"]
    assert saw["freed"]
    assert saw["problems"] == []
    assert saw["out"]
    assert saw["in"]
    if "confined" in saw:  # both read what guests send, and are root's
        bind, administer = 10, 21
        assert saw["confined"] == [[[bind], ["etc", "run"]], [[bind, administer], []]]
    assert saw["complete"]
    assert saw["killed"] == dict.fromkeys(("holder", "outward", "inbound"), True)
    assert all(saw["damaged"].values()), saw["damaged"]
    assert all(saw["mended"].values()), saw["mended"]
    assert saw["in again"]
    # a later manager finds all of it as it was
    assert saw["kept"]
    assert saw["same"]
    assert saw["closed"]
    assert saw["left"] == saw["links left"] == []
