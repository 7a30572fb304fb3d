"""How often Python searches for cycles of garbage: seldom, as hardly any are made."""

import gc
from typing import Final

YOUNG: Final = 50_000
"""So many more objects than before, and the youngest are searched for cycles: Python's is 700.

It has to be more than what the requests that are on their way hold, or these count as old and are
searched again and again: a hundred, of some hundred objects each.
"""


def search_seldom() -> None:
    """From now on.  What a start imports and loads stays: to search it took a quarter of it."""
    gc.set_threshold(YOUNG)


def spare_what_stays() -> None:
    """Search nothing again that there is by now.

    Nor is it searched once before, which takes longer than all else between the store and the API:
    imports leave under a thousand objects behind that nobody needs, and loading leaves none.
    """
    gc.freeze()
