"""What an answer warns of: its ``Warning:`` headers."""

from collections.abc import Iterable, Iterator
from typing import Final

LARGEST_WARNING: Final = 256
LARGEST_WARNINGS: Final = 4096
"""Characters in one warning, and in all warnings of an answer."""


def headers(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The headers, in Kubernetes' bounds: clients do not read a head of any size."""
    left = LARGEST_WARNINGS
    for text in dict.fromkeys(texts):
        shown = "".join(letter for letter in text if letter.isprintable())[:LARGEST_WARNING]
        left -= len(shown)
        if left < 0:
            return
        escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
        yield "warning", f'299 - "{escaped}"'
