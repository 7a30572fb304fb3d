import json

import msgspec
import pytest
from hypothesis import given, strategies as st

from corral.api import encoding, yaml
from corral.api.encoding import (
    DEEPEST,
    MAX_VALUES,
    copied,
    decode_any,
    decode_as,
    decode_json,
    duplicate_keys,
    encode,
    same,
    too_deep,
)
from corral.api.errors import BadRequest, TooLarge
from corral.api.patch.json import json_patch
from corral.api.patch.merge import merge_patch
from corral.api.patch.strategic import strategic_merge


class Form(msgspec.Struct):
    """As much of something as somebody wants to know."""

    a: int = 0
    text: str = ""


PLAIN = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
)


def test_an_encoded_document_begins_with_its_version():
    document = {"spec": {}, "metadata": {"name": "a"}, "kind": "Pod", "apiVersion": "v1"}
    assert encode(document).startswith(b'{"apiVersion":"v1","kind":"Pod","metadata":')
    assert list(document) == ["spec", "metadata", "kind", "apiVersion"]
    assert encode({"kind": "Pod", "apiVersion": "v1"}) == b'{"apiVersion":"v1","kind":"Pod"}'


@given(st.dictionaries(st.text(max_size=3), VALUES))
def test_documents_round_trip(document):
    assert same(decode_json(encode(document)), document)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"{",
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":"\xff"}',
        b'{"a":1' + b"0" * 5000 + b"}",
        b'{"a":' * 100_000,
        b"[" * 100_000,
        b'{"a":' * DEEPEST + b"[]" + b"}" * DEEPEST,
        b"k8s\0\x0a",
    ],
)
def test_an_invalid_document_is_a_bad_request(body):
    with pytest.raises(BadRequest, match="the object provided is unrecognized"):
        decode_json(body, "Pod")


def test_integral_numbers_are_integers():
    read = decode_json(b'{"a":[3.0, 3e2, -0.0, 1.5, 1e30, 12345678901234567890]}')
    assert encode(read) == b'{"a":[3,300,0,1.5,1e30,12345678901234567890]}'
    assert [type(value) for value in read["a"]] == [int, int, int, float, float, int]


def test_the_message_has_expected_and_actual_type():
    with pytest.raises(BadRequest) as refusal:
        decode_json(b'{"kind": "Pod", "metadata": {"name": oops}}', "Pod")
    assert refusal.value.message.startswith(
        "the object provided is unrecognized (must be of type Pod): "
        "couldn't get version/kind; json parse error: "
    )
    assert refusal.value.message.endswith('({"kind": "Pod", "metadata": {" ...)')
    with pytest.raises(BadRequest, match=r"\(<empty>\)$"):
        decode_json(b"")


def test_the_deepest_document_is_accepted():
    assert decode_json(b'{"a":' * (DEEPEST - 1) + b"[]" + b"}" * (DEEPEST - 1))


def test_the_deepest_document_can_be_walked():
    body = b'{"a":' * (DEEPEST - 1) + b"[]" + b"}" * (DEEPEST - 1)
    document = decode_json(body)
    assert same(document, copied(document))
    assert duplicate_keys(body) == []
    assert not too_deep(merge_patch(document, document))
    assert not too_deep(strategic_merge(document, document, {}))
    assert not too_deep(json_patch(document, [{"op": "test", "path": "", "value": document}]))
    assert yaml.load(yaml.dump(document)) == document
    assert encode(document) == body


def test_malformed_patches_are_bad_requests():
    with pytest.raises(BadRequest, match=r"^error decoding patch: "):
        decode_any(b"[{")
    assert decode_any(b"[1]") == [1]


def test_duplicate_keys_are_found_with_their_paths():
    body = b"""{"spec": {"a": 1, "a": 2, "a": 3, "list": [{}, {"b": 1, "b": 1}]},
               "kind": "x", "kind": "y", "other": {"a": 1}}"""
    assert duplicate_keys(body) == ["kind", "spec.a", "spec.list[1].b"]


def test_the_first_of_many_duplicate_keys_are_reported():
    twice = ",".join(f'"{number}":1,"{number}":2' for number in range(1000))
    assert len(duplicate_keys(f"{{{twice}}}".encode())) == 100


def test_too_deep_nesting_under_a_duplicate_key_is_rejected():
    body = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b',"a":1}'
    with pytest.raises(BadRequest, match="exceeded max depth"):
        duplicate_keys(body)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"7",
        b'{"b":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"text":"\xff"}',
        '{"\ud800":1}',
        msgspec.Raw(b"7"),
    ],
)
def test_values_of_another_type_raise_a_decode_error(text):
    with pytest.raises(msgspec.DecodeError):
        decode_as(text, Form)


@given(VALUES)
def test_a_document_has_no_key_twice(value):
    assert duplicate_keys(json.dumps(value).encode()) == []


@given(VALUES)
def test_a_copy_is_equal_and_shares_nothing(value):
    twin = copied(value)
    assert same(twin, value)
    assert twin is not value or not isinstance(value, dict | list)


def test_true_is_not_one():
    assert not same({"a": [True]}, {"a": [1]})
    assert same(1, 1.0)


@given(st.integers(1, 2 * DEEPEST))
def test_depth_is_counted_in_levels(levels):
    value = 1
    for level in range(levels):
        value = [value, 1] if level % 2 else {"a": value}
    assert too_deep(value) == (levels > DEEPEST)


def test_keys_are_counted_only_if_one_is_duplicate(monkeypatch):
    monkeypatch.setattr(encoding, "Counter", None)
    assert duplicate_keys(b'{"a":{"b":[{},{"c":1}]},"d":{}}') == []
    with pytest.raises(TypeError):
        duplicate_keys(b'{"a":{"b":1,"b":2}}')


@pytest.mark.parametrize("item", [b"1", b"{}", b"[]"])
def test_a_body_has_a_bounded_number_of_values(item):
    most = b'{"a":[' + b",".join([item] * (MAX_VALUES - 2)) + b"]}"
    assert len(decode_json(most)["a"]) == MAX_VALUES - 2
    with pytest.raises(TooLarge, match="limit is 100000 values"):
        decode_json(most.replace(b"[", b"[1,", 1))
    with pytest.raises(TooLarge, match="limit is 100000 values"):
        decode_any(b"[" + most.replace(b"[", b"[1,", 1) + b"]")


def test_commas_in_strings_do_not_count():
    assert decode_json(b'{"a":"' + b"1," * MAX_VALUES + b'"}')["a"].startswith("1,1,")
