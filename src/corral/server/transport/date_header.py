"""The header Date of responses, which RFC 9110 requires of servers (section 6.6.1).

By it a node knows how far its host's clock is off.
"""

import time
from email.utils import formatdate
from functools import lru_cache


def date() -> bytes:
    """Return the time of day as HTTP writes it."""
    return _of(int(time.time()))


@lru_cache(maxsize=1)
def _of(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode("ascii")
