"""Proofs that a host has a pull secret, which no other host can use.

A host that lists an image is asked for it, so it sees what the others send.  It learns no hash of
credentials, which it could send on to a third host as its own: what it gets is an HMAC, under that
hash, of the user as whom the sender authenticates, of the image and of the time.
"""

import hmac
from collections.abc import Iterable
from typing import Final

SKEW_SECONDS: Final = 600
"""The age of a proof, and the difference of two hosts' clocks, up to which it counts."""


class SecretProofs:
    """The proofs of one caller for one image; ``now``: seconds since 1970."""

    def __init__(self, caller: str, reference: str, now: float) -> None:
        self._caller = caller
        self._reference = reference
        self._now = int(now)

    def header(self, hashes: Iterable[str]) -> str:
        """Return a header that proves the credentials of these hashes; empty without any."""
        proofs = ",".join(self.prove(each) for each in hashes)
        return f"{self._now} {proofs}" if proofs else ""

    def prove(self, credential_hash: str) -> str:
        """Return the proof of one hash."""
        content = f"{self._now}\n{self._caller}\n{self._reference}"
        return hmac.new(credential_hash.encode(), content.encode(), "sha256").hexdigest()

    def proven(self, header: str, hashes: Iterable[str]) -> str:
        """Return the first proof of a header that is one of these hashes; empty without one."""
        time, _, proofs = header.partition(" ")
        if not time.isdecimal() or not time.isascii() or len(time) > 12:
            return ""
        if abs(int(time) - self._now) > SKEW_SECONDS:
            return ""
        then = SecretProofs(self._caller, self._reference, int(time))
        expected = {then.prove(each) for each in hashes}
        return next((each for each in proofs.split(",") if each in expected), "")
