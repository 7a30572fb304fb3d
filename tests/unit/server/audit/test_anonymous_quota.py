"""Tests of how much strangers may write."""

from corral.server.audit.anonymous_quota import BYTES_A_MINUTE, Strangers


async def test_one_long_line_does_not_silence_the_others():
    strangers = Strangers(lambda _: None, clock=lambda: 0.0)
    assert not strangers.admit(BYTES_A_MINUTE + 1)
    assert strangers.omitted == 1
    assert strangers.admit(BYTES_A_MINUTE)
    assert strangers.admit(100)
    strangers.settle()
