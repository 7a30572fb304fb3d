"""The configuration of a network: which file counts, and what is wrong with it."""

import json

import pytest

from corral.node.network.cni.configuration import load, parse
from corral.node.network.netlink import NetworkError

PLUGIN = {"type": "bridge"}


def document(**fields):
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [PLUGIN], **fields}


def parsed(tmp_path, text, name="10-pods.conflist"):
    content = text if isinstance(text, bytes) else json.dumps(text).encode()
    return parse(tmp_path / name, content)


def test_the_first_file_by_name_is_the_network(tmp_path):
    for name in ("20-b.conflist", "10-a.conflist"):
        (tmp_path / name).write_text(json.dumps(document(name=name[3])))
    (tmp_path / "00-readme.txt").write_text("no configuration")
    assert load(tmp_path).name == "a"


def test_a_single_plugin_is_a_list_of_one(tmp_path):
    found = parsed(tmp_path, {"cniVersion": "0.4.0", "name": "pods", **PLUGIN}, "10-pods.conf")
    assert [each["type"] for each in found.plugins] == ["bridge"]
    assert found.version == "0.4.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "no JSON object"),
        (b"[]", "no JSON object"),
        (document(plugins=[]), "plugins: name at least one"),
        (document(plugins=["bridge"]), r"plugins\[0\]: not an object"),
        (document(plugins=[PLUGIN, {}]), r"plugins\[1\].type: None"),
        (document(plugins=[{"type": "../sh"}]), r"plugins\[0\].type: '../sh'"),
        (
            document(plugins=[{**PLUGIN, "capabilities": []}]),
            r"plugins\[0\].capabilities: not an object",
        ),
        (document(name="a/b"), "name: 'a/b'"),
        (document(cniVersion="0.2.0"), "cniVersion: '0.2.0' is not supported"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(tmp_path, text, message):
    with pytest.raises(NetworkError, match=rf"10-pods.conflist is invalid: {message}"):
        parsed(tmp_path, text)


def test_an_invalid_first_file_does_not_give_way_to_another_network(tmp_path):
    (tmp_path / "10-a.conflist").write_text("{")
    (tmp_path / "20-b.conflist").write_text(json.dumps(document()))
    with pytest.raises(NetworkError, match=r"10-a\.conflist is invalid"):
        load(tmp_path)


def test_a_host_without_a_configuration_is_reported_with_the_option(tmp_path):
    with pytest.raises(NetworkError, match="no CNI configuration in") as raised:
        load(tmp_path)
    assert "--cni-conf-dir" in raised.value.hint
    with pytest.raises(NetworkError, match="missing: No such file"):
        load(tmp_path / "missing")


@pytest.mark.parametrize(
    ("fields", "has_check"),
    [({}, True), ({"cniVersion": "0.3.1"}, False), ({"disableCheck": True}, False)],
)
def test_attachments_are_checked_since_0_4_unless_disabled(tmp_path, fields, has_check):
    assert parsed(tmp_path, document(**fields)).has_check is has_check


def test_a_plugin_gets_the_capabilities_that_it_declares(tmp_path):
    declaring = {"type": "a", "capabilities": {"mac": True, "ipRanges": False}}
    found = parsed(tmp_path, document(plugins=[declaring, {"type": "b"}]))
    capabilities = {"mac": "02:00:00:00:00:02", "ipRanges": []}
    first, second = (found.for_plugin(each, capabilities, None) for each in found.plugins)
    assert first["runtimeConfig"] == {"mac": "02:00:00:00:00:02"}
    assert "runtimeConfig" not in second
    assert (first["name"], first["cniVersion"]) == ("pods", "1.0.0")
    assert found.has_capability("mac")
    assert not found.has_capability("ipRanges")


def test_a_plugin_gets_the_result_of_the_one_before(tmp_path):
    found = parsed(tmp_path, document())
    assert found.for_plugin(PLUGIN, {}, {"ips": []})["prevResult"] == {"ips": []}
    assert "prevResult" not in found.for_plugin(PLUGIN, {}, None)
