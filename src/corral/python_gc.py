"""Tuning of Python's cyclic garbage collector: it runs seldom, because few cycles are made."""

import gc
from typing import Final

THRESHOLD: Final = 50_000
"""Threshold of new objects for a collection of the youngest generation; Python's is 700.

It must exceed the objects of concurrent requests (a hundred, with some hundred objects each), or
these are promoted to an older generation and scanned again and again.
"""


def raise_threshold() -> None:
    """Raise the threshold: collections took a quarter of the time of a start."""
    gc.set_threshold(THRESHOLD)


def freeze() -> None:
    """Exempt all existing objects from collections.

    Without a collection before it, which takes longer than all else between the start of the store
    and that of the API: imports leave less than a thousand garbage objects, loading none.
    """
    gc.freeze()
