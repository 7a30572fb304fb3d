"""``corral status``, ``stop`` and ``down`` on a joined host."""

import msgspec
import pytest
from lightkube.models.core_v1 import Node
from lightkube.models.meta_v1 import ObjectMeta

from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.cli.main import run
from corral.cli.manager.joined_status import _Answer, _lines
from corral.config import Layout
from corral.daemon.membership import Membership, NetworkSettings


@pytest.fixture
def layout(tmp_path):
    """A joined host whose server is unreachable."""
    layout = Layout(tmp_path)
    network = NetworkSettings("10.42.0.0/16", "10.43.0.0/16")
    Membership("https://127.0.0.1:1", "h2", network).save(layout)
    return layout


def test_a_joined_host_names_its_node_server_and_agent(layout, capsys):
    assert run(["status", "--data-dir", str(layout.root)]) == 3
    out, err = capsys.readouterr()
    assert "https://127.0.0.1:1, as node h2" in out
    assert "no agent runs here" in err
    assert f"corral join --detach --data-dir {layout.root}" in err
    assert "manager" not in out + err


def test_a_missing_certificate_is_reported(layout, capsys):
    run(["status", "--data-dir", str(layout.root)])
    assert "server cannot be asked: " in " ".join(capsys.readouterr().out.split())


def test_stop_reports_the_agent(layout, capsys):
    assert run(["stop", "--data-dir", str(layout.root)]) == 0
    assert capsys.readouterr().out == f"No agent runs on {layout.root}.\n"


def test_without_an_agent_the_api_is_not_asked_what_runs(layout):
    """After ``corral down`` it has the machines as they were."""
    machine = msgspec.convert({"spec": {"domain": {"devices": {}}}}, VirtualMachineInstance)
    answer = _Answer([Node(metadata=ObjectMeta(name="h2"))], [machine])
    with_agent, without = (
        [line for line in _lines(layout, answer, runs=runs) if line.startswith("machines")]
        for runs in (True, False)
    )
    assert len(with_agent) == 1
    assert without == []
