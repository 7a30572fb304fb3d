"""When a quota has more room than before."""

import msgspec
import pytest
from lightkube.models.core_v1 import ResourceQuota

from corral.reconcile.quota_room import has_more_room


def quota(hard, used=None):
    document = {"spec": {"hard": hard}, "status": {"used": used or {}}}
    return msgspec.convert(document, ResourceQuota)


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (quota({"pods": "1"}), quota({"pods": "2"}), True),
        (quota({"pods": "2"}), quota({"pods": "1"}), False),
        (quota({"pods": "2"}, {"pods": "2"}), quota({"pods": "2"}, {"pods": "1"}), True),
        (quota({"pods": "2"}, {"pods": "1"}), quota({"pods": "2"}, {"pods": "2"}), False),
        (quota({"pods": "2", "cpu": "1"}), quota({"pods": "2"}), True),
        (quota({"pods": "2"}), quota({"pods": "2", "cpu": "1"}), False),
        (quota({"pods": "2", "cpu": "1"}), quota({"pods": "1", "cpu": "2"}), True),
    ],
)
def test_room_is_what_is_left_of_any_bound(old, new, more):
    assert has_more_room(old, new) is more
