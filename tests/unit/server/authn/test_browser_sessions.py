"""One-use codes and the tokens of browsers, under a virtual clock."""

import pytest

from corral.api.errors import Unauthorized
from corral.api.request import Certificate, Request, User
from corral.server.authn import browser_sessions
from corral.server.authn.authenticator import Authenticator
from corral.server.authn.browser_sessions import (
    CODE_SECONDS,
    MAX_PER_USER,
    PREFIX,
    SESSION_SECONDS,
    BrowserSessions,
)
from corral.store import Store


class Clock:
    def __init__(self):
        self.time = 1e9

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def grants(clock):
    return BrowserSessions(clock)


def shown(token="secret", certificate=None):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return Request(method="GET", path="/", headers=headers, certificate=certificate)


def test_a_code_is_redeemed_once(grants):
    code, _ = grants.issue_code("anna", shown())
    token, _ = grants.redeem(code)
    assert grants.find(token).user == "anna"
    assert grants.redeem(code) is None


def test_a_code_ends_after_a_minute(grants, clock):
    code, ends = grants.issue_code("anna", shown())
    other, _ = grants.issue_code("anna", shown())
    clock.time = ends - 0.1
    assert grants.redeem(code) is not None
    clock.time = ends
    assert grants.redeem(other) is None
    assert ends == 1e9 + CODE_SECONDS


def test_a_session_ends_after_half_a_day_and_by_sign_out(grants, clock):
    tokens = [grants.redeem(grants.issue_code("anna", shown())[0])[0] for _ in range(2)]
    grants.end(tokens[0])
    assert grants.find(tokens[0]) is None
    clock.time += SESSION_SECONDS - 1
    assert grants.find(tokens[1]) is not None
    clock.time += 1
    assert grants.find(tokens[1]) is None


def test_unknown_secrets_find_nothing(grants):
    code, _ = grants.issue_code("anna", shown())
    assert grants.redeem("") is None
    assert grants.redeem(f"{code}x") is None
    assert grants.find(code) is None
    assert grants.find(f"{PREFIX}x") is None


def test_neither_codes_nor_tokens_are_kept(grants):
    code, _ = grants.issue_code("anna", shown())
    other, _ = grants.issue_code("anna", shown())
    token, _ = grants.redeem(code)
    kept = repr(vars(grants))
    assert other not in kept
    assert token not in kept


def test_the_oldest_of_too_many_is_dropped_for_its_user_alone(grants):
    first, _ = grants.issue_code("anna", shown())
    of_ben, _ = grants.issue_code("ben", shown())
    second, _ = grants.issue_code("anna", shown())
    for _ in range(MAX_PER_USER - 1):
        grants.issue_code("anna", shown())
    assert grants.redeem(first) is None
    assert grants.redeem(second) is not None
    assert grants.redeem(of_ben) is not None


@pytest.fixture
async def authenticator(clock):
    store = Store.in_memory()
    tokens = {"secret": User(name="ben", groups=("team",))}
    yield Authenticator(tokens).over(store, None, clock)
    await store.close()


def session_of(authenticator, credentials):
    grants = authenticator.browser_sessions
    code, _ = grants.issue_code("anybody", credentials)
    return grants.redeem(code)[0]


async def test_a_session_has_the_user_and_the_groups_of_its_credentials(authenticator):
    token = session_of(authenticator, shown())
    assert authenticator.user(shown(token)) == User(name="ben", groups=("team",))
    assert authenticator.ends(shown(token)) == 1e9 + SESSION_SECONDS


async def test_a_session_ends_with_its_certificate(authenticator, clock):
    certificate = Certificate(name="anna", begins=0, ends=1e9 + 100, fingerprint="ab")
    token = session_of(authenticator, shown("", certificate))
    assert authenticator.user(shown(token)).name == "anna"
    assert authenticator.ends(shown(token)) == 1e9 + 100
    clock.time = 1e9 + 100
    with pytest.raises(Unauthorized):
        authenticator.user(shown(token))


async def test_a_session_of_a_session_ends_with_the_first(authenticator, clock):
    first = session_of(authenticator, shown())
    clock.time += SESSION_SECONDS / 2
    second = session_of(authenticator, shown(first))
    assert authenticator.ends(shown(second)) == 1e9 + SESSION_SECONDS
    authenticator.browser_sessions.end(first)
    with pytest.raises(Unauthorized):
        authenticator.user(shown(second))


def test_secrets_have_256_bits():
    grants = BrowserSessions(Clock())
    code, _ = grants.issue_code("anna", shown())
    assert len(code) >= 43
    assert browser_sessions.PREFIX not in code
