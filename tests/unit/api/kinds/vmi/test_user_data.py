"""The annotations of user data."""

import pytest

from corral.api.kinds.vmi.user_data import USER_DATA, USER_DATA_SECRET, has_user_data


@pytest.mark.parametrize("name", [USER_DATA, USER_DATA_SECRET])
def test_either_annotation_is_user_data(name):
    assert has_user_data({name: "x"})
    assert not has_user_data({"other": "x"})
