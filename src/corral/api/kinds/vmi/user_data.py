"""User data that a running guest is given: the annotations of a VMI that say which.

A machine of a warm pool has booted before anybody knows who gets it, so cloud-init cannot read what
is for that user only; the guest agent hands it in.  Both annotations are set when the machine is
handed out, and never change.
"""

from collections.abc import Mapping
from typing import Final

USER_DATA: Final = "corral.dev/user-data"
"""Annotation of a VMI: the user data itself."""
USER_DATA_SECRET: Final = "corral.dev/user-data-secret"  # noqa: S105 - a name
"""Annotation of a VMI: the Secret with the user data."""
SECRET_KEYS: Final = ("userdata", "userData")
"""Keys of the user data in a Secret, as in those of KubeVirt's cloud-init volumes."""
APPLIED: Final = "UserDataApplied"
"""Condition of a VMI: whether its guest has applied the user data."""
PENDING, FAILED = "UserDataPending", "UserDataFailed"
"""Reasons while it is False: the second does not pass by itself."""
NOT_FOUND: Final = "UserDataNotFound"
"""Reason while the Secret, or its key, does not exist."""


def has_user_data(annotations: Mapping[str, str]) -> bool:
    """Return whether a guest shall be given user data."""
    return USER_DATA in annotations or USER_DATA_SECRET in annotations
