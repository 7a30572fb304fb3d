"""Random names."""

import secrets

from corral.api.names import SUFFIX_LENGTH, SUFFIX_LETTERS


def random_name(stem: str) -> str:
    """Return ``STEM-xxxxx``."""
    return f"{stem}-{''.join(secrets.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))}"
