"""How the proxy's table is put in the place of another one."""

import pytest

from corral.node.network import nft
from corral.node.network.netlink import NetworkError
from corral.node.proxy.nft_rules import REFUSING, SILENT, Rules
from corral.node.proxy.proxy import write_whole
from corral.node.proxy.service_rules import NOWHERE


@pytest.fixture
def applied(monkeypatch) -> list[str]:
    """What the kernel was given."""
    texts: list[str] = []
    monkeypatch.setattr(nft, "apply", texts.append)
    monkeypatch.setattr(nft, "query", lambda _: "table inet corral_services {\n}\n")
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

    monkeypatch.setattr(nft, "query", refuse)
    monkeypatch.setattr(nft, "apply", apply)
    rules = Rules(NOWHERE)
    write_whole(rules)
    assert applied[-1] == rules.whole()


@pytest.mark.parametrize("is_large", [False, True])
def test_a_table_that_stays_refuses_again(applied, monkeypatch, is_large):
    def apply(text):
        applied.append(text)
        if "delete table" in text:
            raise NetworkError("Message too long")

    monkeypatch.setattr(nft, "apply", apply)
    monkeypatch.setattr(nft, "TRANSACTION_CHARACTERS", 1 if is_large else 1 << 20)
    with pytest.raises(NetworkError, match="too long"):
        write_whole(Rules(NOWHERE))
    assert applied[0] == SILENT
    assert applied[-1] == REFUSING


def test_a_table_that_is_there_in_part_refuses_nobody(applied, monkeypatch):
    rules = Rules(NOWHERE)
    last = rules.in_steps()[-1]

    def apply(text):
        applied.append(text)
        if text in {rules.whole(), last}:
            raise NetworkError("No buffer space available")

    monkeypatch.setattr(nft, "apply", apply)
    monkeypatch.setattr(nft, "TRANSACTION_CHARACTERS", 1)
    with pytest.raises(NetworkError, match="buffer space"):
        write_whole(rules)
    assert applied[-1] == last
