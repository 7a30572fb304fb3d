"""Who is to be let in, decided from access credentials and their Secrets."""

import msgspec

from corral.api.kinds.vmi.access import AccessCredential, keys_of, passwords_of
from corral.node.guest.access_credentials import plan


def keys(secret, *users):
    way = {"qemuGuestAgent": {"users": users}}
    source = {"secret": {"secretName": secret}}
    document = {"sshPublicKey": {"source": source, "propagationMethod": way}}
    return msgspec.convert(document, AccessCredential)


def passwords(secret):
    source = {"secret": {"secretName": secret}}
    document = {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}
    return msgspec.convert(document, AccessCredential)


def test_a_user_gets_the_keys_of_all_secrets_once():
    credentials = [keys("a", "root", "demo"), keys("b", "demo")]
    todo = plan(credentials, {"a": {"1": b"one\ntwo"}, "b": {"1": b"two", "2": b"three"}})
    assert todo.keys == {"root": ["one", "two"], "demo": ["one", "two", "three"]}
    assert (todo.passwords, todo.problems) == ({}, [])


def test_a_user_with_a_missing_secret_keeps_earlier_keys():
    credentials = [keys("a", "root", "demo"), keys("gone", "demo"), keys("gone", "demo")]
    todo = plan(credentials, {"a": {"1": b"one"}, "gone": 'secret "gone" not found'})
    assert todo.keys == {"root": ["one"]}
    assert todo.problems == ['secret "gone" not found']


def test_a_secret_without_keys_removes_all_keys():
    assert plan([keys("a", "demo")], {"a": {}}).keys == {"demo": []}


def test_passwords_are_those_of_all_secrets():
    secrets = {"a": {"root": b"x\n", "demo": b"y"}, "b": {"demo": b"z"}}
    todo = plan([passwords("a"), passwords("b")], secrets)
    assert todo.passwords == {"root": "x", "demo": "z"}
    assert todo.keys == {}


def test_secrets_may_have_comments_and_blank_lines():
    assert keys_of({"b": b"# note\r\n\r\n key two \r\n", "a": b"key one"}) == ["key one", "key two"]
    assert keys_of({"a": b"\xff\xfe"}) == ["\ufffd\ufffd"]
    assert passwords_of({"root": b" \n", "demo": b" a b \n"}) == {"demo": "a b"}
