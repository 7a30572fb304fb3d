import msgspec
import pytest
from lightkube.models.core_v1 import Node, Pod, PodSpec, Taint, Toleration

from corral.api.kinds.core.machine_nodes import (
    LIVE_MIGRATION_LABEL,
    MACHINE_NODES,
    TAINT,
    can_migrate_to,
)
from corral.api.node_fit import tolerates


def test_launcher_pods_tolerate_the_taint_and_no_other():
    tolerations = [Toleration(**each) for each in MACHINE_NODES.tolerations]
    pod = Pod(spec=PodSpec(containers=[], tolerations=tolerations))
    assert tolerates(pod, Taint(**TAINT))
    assert not tolerates(pod, Taint(key="other", effect="NoSchedule"))
    assert not tolerates(Pod(spec=PodSpec(containers=[])), Taint(**TAINT))


def node(*, port=0, version="1"):
    endpoints = {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}} if port else {}
    labels = {LIVE_MIGRATION_LABEL: version} if version else {}
    return msgspec.convert({"metadata": {"labels": labels}, "status": endpoints}, Node)


@pytest.mark.parametrize(
    ("source", "target", "migrates"),
    [
        (node(version=""), node(version=""), True),
        (node(), node(port=10250), True),
        (node(port=10250), node(), True),
        (node(port=10250), node(port=10250), True),
        (node(), node(port=10250, version=""), False),
        (node(port=10250, version=""), node(), False),
        (node(port=10250), node(port=10250, version="2"), False),
        (None, node(), False),
    ],
    ids=[
        *("on the first host", "from it", "to it", "between others"),
        *("to an older one", "from an older one", "to a newer one", "from a node that is gone"),
    ],
)
def test_machines_migrate_between_hosts_whose_nodes_say_so(source, target, migrates):
    assert can_migrate_to(source, target) is migrates
