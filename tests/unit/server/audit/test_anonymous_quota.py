"""Tests of how much quota may write."""

from corral.server.audit.anonymous_quota import BYTES_PER_MINUTE, AnonymousQuota


async def test_one_long_line_does_not_silence_the_others():
    quota = AnonymousQuota(lambda _: None, clock=lambda: 0.0)
    assert not quota.admit(BYTES_PER_MINUTE + 1)
    assert quota.omitted == 1
    assert quota.admit(BYTES_PER_MINUTE)
    assert quota.admit(100)
    quota.flush()
