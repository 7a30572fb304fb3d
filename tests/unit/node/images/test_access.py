from corral.node.images.access import MAX_SECRETS, Access
from corral.node.images.credentials import Credential, SecretName


def credential(uid, password="secret"):
    return Credential("example.com", "user", password, SecretName("a", "pull", uid))


def test_an_image_is_accessible_to_all_unless_pulled_with_a_secret():
    assert Access.by(None).allows([])
    assert Access.by(Credential("example.com", "user", "secret")).allows([])
    assert not Access.by(credential("1")).allows([])


def test_a_secret_counts_by_its_name_or_its_content():
    access = Access.by(credential("1"))
    assert access.allows([credential("1", "changed")])
    assert access.allows([credential("2")])
    assert not access.allows([credential("2", "changed")])


def test_access_of_several_pulls_is_merged():
    both = Access.by(credential("1", "a")).merge(Access.by(credential("2", "b")))
    assert both.allows([credential("1", "a")])
    assert both.allows([credential("2", "b")])
    assert not both.allows([credential("3", "c")])
    assert both.merge(Access()).allows([])


def test_the_number_of_remembered_secrets_is_limited():
    access = Access.by(credential("0", "0"))
    for number in range(MAX_SECRETS):
        access = access.merge(Access.by(credential(str(number + 1), str(number + 1))))
    assert len(access.secrets) == MAX_SECRETS
    assert not access.allows([credential("0", "0")])
