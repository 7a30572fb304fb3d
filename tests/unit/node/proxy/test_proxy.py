"""How the proxy's table is put in the place of another one."""

import pytest

from corral.node.network import nft
from corral.node.network.netlink import NetworkError
from corral.node.proxy.nft_rules import SILENT, Rules
from corral.node.proxy.proxy import write_whole
from corral.node.proxy.service_rules import NOWHERE


@pytest.fixture
def applied(monkeypatch) -> list[str]:
    """What the kernel was given."""
    texts: list[str] = []
    monkeypatch.setattr(nft, "apply", texts.append)
    monkeypatch.setattr(nft, "ask", lambda _: "table inet corral_services {\n}\n")
    return texts


def test_nobody_is_refused_while_the_kernel_changes_tables(applied):
    rules = Rules(NOWHERE)
    write_whole(rules)
    assert applied == [SILENT, rules.whole()]


def test_a_table_is_written_where_there_is_none(applied, monkeypatch):
    def refuse(_):
        raise NetworkError("No such file or directory")

    def apply(text):
        applied.append(text)
        if text == SILENT:
            refuse(text)

    monkeypatch.setattr(nft, "ask", refuse)
    monkeypatch.setattr(nft, "apply", apply)
    rules = Rules(NOWHERE)
    write_whole(rules)
    assert applied[-1] == rules.whole()
