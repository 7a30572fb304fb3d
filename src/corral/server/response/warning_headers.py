"""``Warning:`` headers of responses."""

from collections.abc import Iterable, Iterator
from typing import Final

MAX_WARNING_CHARACTERS: Final = 256
MAX_WARNINGS_CHARACTERS: Final = 4096
"""Limits of one warning, and of all warnings of a response."""


def headers(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the headers, within Kubernetes' limits: clients bound the size of headers."""
    characters_left = MAX_WARNINGS_CHARACTERS
    for text in dict.fromkeys(texts):
        printable = text if text.isprintable() else "".join(filter(str.isprintable, text))
        shown = printable[:MAX_WARNING_CHARACTERS]
        characters_left -= len(shown)
        if characters_left < 0:
            return
        escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
        yield "warning", f'299 - "{escaped}"'
