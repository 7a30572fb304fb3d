from lightkube.models.core_v1 import Pod, PodSpec, Taint, Toleration

from corral.api.kinds.core.machine_nodes import MACHINE_NODES, TAINT
from corral.api.node_fit import tolerates


def test_launcher_pods_tolerate_the_taint_and_no_other():
    tolerations = [Toleration(**each) for each in MACHINE_NODES.tolerations]
    pod = Pod(spec=PodSpec(containers=[], tolerations=tolerations))
    assert tolerates(pod, Taint(**TAINT))
    assert not tolerates(pod, Taint(key="other", effect="NoSchedule"))
    assert not tolerates(Pod(spec=PodSpec(containers=[])), Taint(**TAINT))
