import uuid

from corral.api.uid import random_uuid


def test_a_random_uuid_is_valid_for_the_library():
    texts = [random_uuid() for _ in range(500)]
    for text in texts:
        read = uuid.UUID(text)
        assert (str(read), read.version, read.variant) == (text, 4, uuid.RFC_4122)
    assert len(set(texts)) == len(texts)


def test_all_other_bits_are_random(monkeypatch):
    monkeypatch.setattr("os.urandom", bytes)
    assert random_uuid() == "00000000-0000-4000-8000-000000000000"
    monkeypatch.setattr("os.urandom", lambda count: b"\xff" * count)
    assert random_uuid() == "ffffffff-ffff-4fff-bfff-ffffffffffff"
