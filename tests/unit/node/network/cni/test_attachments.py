"""Attachments on disk: what the next manager finds of them."""

import msgspec
import pytest

from corral.node.network.cni.attachments import Attachment, Attachments
from corral.node.network.cni.configuration import NetworkConfiguration

CONFIGURATION = NetworkConfiguration(name="pods", version="1.0.0", plugins=[{"type": "bridge"}])


def attachment(container, uid="u", **fields):
    return Attachment(
        container=container,
        uid=uid,
        namespace="default",
        pod="virt-launcher",
        pod_uid="p",
        configuration=CONFIGURATION,
        capabilities={"mac": "02:00:00:00:00:02"},
        directories=["/opt/cni/bin"],
        **fields,
    )


@pytest.fixture
def store(tmp_path):
    return Attachments(tmp_path / "cni")


def test_attachments_are_found_by_the_next_manager(store, tmp_path):
    made = attachment("a", result={"ips": []})
    store.write(made)
    again = Attachments(tmp_path / "cni")
    assert again.all() == [made]
    assert again.get("a") == made
    again.delete("a")
    assert not again.all()
    assert not Attachments(tmp_path / "cni").all()
    again.delete("a")


def test_that_of_a_running_machine_was_added_and_not_replaced(store):
    store.write(attachment("failed"))
    store.write(attachment("old", result={}, released=True))
    assert store.live("u") is None
    store.write(attachment("new", result={}))
    assert store.live("u") == store.get("new")
    assert store.live("other") is None
    assert len(store.of("u")) == 3


def test_a_change_is_seen_at_once(store):
    store.write(attachment("a"))
    store.write(msgspec.structs.replace(attachment("a"), result={}))
    assert store.live("u") is not None


def test_a_damaged_file_does_not_hide_the_others(store, tmp_path):
    store.write(attachment("a"))
    (tmp_path / "cni" / "b.json").write_text("{")
    assert [each.container for each in Attachments(tmp_path / "cni").all()] == ["a"]
