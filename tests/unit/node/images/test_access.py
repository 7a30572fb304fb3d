from corral.node.images.access import MAX_SECRETS, Access
from corral.node.images.credentials import Credential, SecretName


def credential(uid, password="secret"):
    return Credential("example.com", "user", password, SecretName("a", "pull", uid))


def test_an_image_is_there_for_all_unless_it_came_with_a_secret():
    assert Access.by(None).allows([])
    assert Access.by(Credential("example.com", "user", "secret")).allows([])
    assert not Access.by(credential("1")).allows([])


def test_a_secret_counts_for_what_it_is_or_for_what_it_says():
    access = Access.by(credential("1"))
    assert access.allows([credential("1", "changed")])
    assert access.allows([credential("2")])
    assert not access.allows([credential("2", "changed")])


def test_those_for_whom_an_image_is_there_come_together():
    both = Access.by(credential("1", "a")).merge(Access.by(credential("2", "b")))
    assert both.allows([credential("1", "a")])
    assert both.allows([credential("2", "b")])
    assert not both.allows([credential("3", "c")])
    assert both.merge(Access()).allows([])


def test_no_more_secrets_are_remembered_than_that():
    access = Access.by(credential("0", "0"))
    for number in range(MAX_SECRETS):
        access = access.merge(Access.by(credential(str(number + 1), str(number + 1))))
    assert len(access.secrets) == MAX_SECRETS
    assert not access.allows([credential("0", "0")])
