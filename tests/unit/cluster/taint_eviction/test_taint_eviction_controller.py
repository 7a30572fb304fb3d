"""How long pods stay on tainted nodes."""

import msgspec
import pytest
from lightkube.models.core_v1 import Pod, Taint

from corral.cluster.taint_eviction.taint_eviction_controller import tolerated_seconds

GONE = Taint(key="gone", effect="NoExecute")
MINE = Taint(key="mine", effect="NoExecute", value="a")


def pod(*tolerations):
    return msgspec.convert({"spec": {"containers": [], "tolerations": list(tolerations)}}, Pod)


def tolerated(key, seconds=None, **more):
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", **limit, **more}


@pytest.mark.parametrize(
    ("tolerations", "taints", "seconds"),
    [
        ([], [], None),
        ([], [GONE], 0),
        ([tolerated("gone")], [GONE], None),
        ([tolerated("gone", 30)], [GONE], 30),
        ([tolerated("gone", -1)], [GONE], 0),
        ([tolerated("gone", 30)], [GONE, MINE], 0),
        ([tolerated("gone", 30), tolerated("mine")], [GONE, MINE], 30),
        ([tolerated("gone", 30), tolerated("gone", 10)], [GONE], 10),
        ([tolerated("gone", effect="NoSchedule")], [GONE], 0),
        ([{"operator": "Exists"}], [GONE, MINE], None),
        ([{"key": "mine", "value": "b"}], [MINE], 0),
    ],
)
def test_a_pod_stays_as_long_as_it_tolerates_every_taint(tolerations, taints, seconds):
    assert tolerated_seconds(pod(*tolerations), taints) == seconds
