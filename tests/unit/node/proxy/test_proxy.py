"""How the proxy's table is put in the place of another one."""

import pytest

from corral.node.network import nft
from corral.node.network.netlink import NetworkError
from corral.node.proxy.nft_rules import DROP_UNKNOWN, REJECT_UNKNOWN, Rules
from corral.node.proxy.proxy import write_table
from corral.node.proxy.service_rules import NO_ADDRESSES


@pytest.fixture
def applied(monkeypatch) -> list[str]:
    """What the kernel was given."""
    texts: list[str] = []
    monkeypatch.setattr(nft, "apply", texts.append)
    monkeypatch.setattr(nft, "query", lambda _: "table inet corral_services {\n}\n")
    return texts


def test_connections_are_not_rejected_during_a_change_of_tables(applied):
    rules = Rules(NO_ADDRESSES)
    write_table(rules)
    assert applied == [DROP_UNKNOWN, rules.full_transaction()]


def test_a_missing_table_is_written(applied, monkeypatch):
    def refuse(_):
        raise NetworkError("No such file or directory")

    def apply(text):
        applied.append(text)
        if text == DROP_UNKNOWN:
            refuse(text)

    monkeypatch.setattr(nft, "query", refuse)
    monkeypatch.setattr(nft, "apply", apply)
    rules = Rules(NO_ADDRESSES)
    write_table(rules)
    assert applied[-1] == rules.full_transaction()


@pytest.mark.parametrize("is_large", [False, True])
def test_an_existing_table_rejects_again(applied, monkeypatch, is_large):
    def apply(text):
        applied.append(text)
        if "delete table" in text:
            raise NetworkError("Message too long")

    monkeypatch.setattr(nft, "apply", apply)
    monkeypatch.setattr(nft, "TRANSACTION_CHARACTERS", 1 if is_large else 1 << 20)
    with pytest.raises(NetworkError, match="too long"):
        write_table(Rules(NO_ADDRESSES))
    assert applied[0] == DROP_UNKNOWN
    assert applied[-1] == REJECT_UNKNOWN


def test_a_partial_table_rejects_nothing(applied, monkeypatch):
    rules = Rules(NO_ADDRESSES)
    last = rules.split_transactions()[-1]

    def apply(text):
        applied.append(text)
        if text in {rules.full_transaction(), last}:
            raise NetworkError("No buffer space available")

    monkeypatch.setattr(nft, "apply", apply)
    monkeypatch.setattr(nft, "TRANSACTION_CHARACTERS", 1)
    with pytest.raises(NetworkError, match="buffer space"):
        write_table(rules)
    assert applied[-1] == last
