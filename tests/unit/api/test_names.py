import pytest
from hypothesis import given, strategies as st

from corral.api.names import (
    label_faults,
    label_key_faults,
    label_value_faults,
    service_name_faults,
    subdomain_faults,
)


@pytest.mark.parametrize("key", ["a", "A.b_c-1", "kubevirt.io/domain", "a" * 63, "x/" + "a" * 63])
def test_label_keys(key):
    assert label_key_faults(key) == []


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("", "name part must be non-empty"),
        ("/a", "prefix part must be non-empty"),
        ("A.io/a", "prefix part a lowercase RFC 1123 subdomain must consist"),
        ("a" * 64, "name part must be no more than 63 bytes"),
        ("a/b/c", "a qualified name must consist of alphanumeric characters"),
        ("-a", "name part must consist of alphanumeric characters"),
        ("a\n", "name part must consist of alphanumeric characters"),
    ],
)
def test_invalid_label_keys(key, fault):
    assert label_key_faults(key)[0].startswith(fault)


def test_label_values():
    assert label_value_faults("") == label_value_faults("a.B_c-1") == []
    assert label_value_faults("a" * 64) == ["must be no more than 63 bytes"]
    assert len(label_value_faults("-" * 64)) == 2


def test_names_of_services():
    assert service_name_faults("web-1") == service_name_faults("a" * 63) == []
    for name in ("1st", "a.b", "A", "-a", "a-", ""):
        assert service_name_faults(name)[0].startswith("a DNS-1035 label must consist of")
    assert service_name_faults("a" * 64) == ["must be no more than 63 bytes"]


def test_names_of_objects():
    assert subdomain_faults("a.b-c.1") == label_faults("a-1") == []
    assert label_faults("a.b")[0].startswith("a lowercase RFC 1123 label must consist")
    assert subdomain_faults("a" * 254) == ["must be no more than 253 bytes"]
    assert label_faults("a" * 64) == ["must be no more than 63 bytes"]
    assert subdomain_faults("A")
    assert subdomain_faults("")


@given(st.text(max_size=8))
def test_a_label_is_a_subdomain_and_a_label_value(name):
    if not label_faults(name):
        assert not subdomain_faults(name)
        assert not label_value_faults(name)
