import pytest
from hypothesis import given, strategies as st

from corral.api import yaml
from corral.api.encoding import DEEPEST, MAX_VALUES, same
from corral.api.errors import ApiError, BadRequest, TooLarge


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", True),
        ("y", True),
        ("NO", False),
        ("~", None),
        ("", None),
        ("0644", 420),
        ("0o644", 420),
        ("0x1F", 31),
        ("-0b11", -3),
        ("1_000", 1000),
        ("-7", -7),
        ("08", 8),
        ("1e3", 1000),
        ("1.50", 1.5),
        ("2.0", 2),
        (".5", 0.5),
        ("1e999", "1e999"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("64M", "64M"),
        ('"on"', "on"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("! 1", "1"),
        ("|\n  text\n  more\n", "text\nmore\n"),
        ("[1, [], {}]", [1, [], {}]),
        ("=", "="),
        ("0x", "0x"),
        ("_1", "_1"),
    ],
)
def test_values_are_parsed_as_in_kubectl(text, value):
    read = yaml.load(f"a: {text}\n")["a"]
    assert read == value
    assert type(read) is type(value)


def test_keys_are_text():
    assert yaml.load("1: a\non: b\n1.5: c\n'x': d") == {"1": "a", "true": "b", "1.5": "c", "x": "d"}


def test_maps_are_merged_and_aliases_copied():
    text = """
base: &base {a: 1, b: 2}
one:
  <<: *base
  b: 3
two:
  <<: [*base, {c: 4}]
three: *base
"""
    read = yaml.load(text)
    assert read["one"] == {"a": 1, "b": 3}
    assert read["two"] == {"a": 1, "b": 2, "c": 4}
    assert read["three"] == read["base"]
    assert read["three"] is not read["base"]


class Large(dict):
    """An object that counts its copies."""

    copies = 0

    def __ror__(self, other):
        self.copies += 1
        return other | dict(self)


def test_an_object_is_copied_once_however_many_are_merged_into_it():
    """There is room for fifty thousand, and for as many keys."""
    large = Large(a=1, b=2)
    merged = [{"a": 3, "c": 3}, {"c": 4, "d": 4}, *({} for _ in range(100))]
    assert yaml._merged(merged, large) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert large.copies == 1


def test_several_documents():
    assert list(yaml.load_all("a: 1\n---\n# nothing\n---\nb: 2\n...\n")) == [{"a": 1}, {"b": 2}]
    assert list(yaml.load_all("")) == []
    assert yaml.load(b'{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c", "yaml: line 1: mapping values are not allowed in this context"),
        ("a: 1\nb: 2\na: 3", 'yaml: line 3: key "a" already set in map'),
        ("a: *b", 'yaml: line 1: unknown anchor "b" referenced'),
        ("a: &b [*b]", 'unknown anchor "b" referenced'),
        ("a: !!python/object:os.system ls", "is not supported"),
        ("a: !!python/tuple [1]", "is not supported"),
        ("a: !secret x", "tag !secret is not supported"),
        ("a: !!set {b}", "is not supported"),
        ("? [a]\n: b", "a key of a map must be text"),
        ("<<: 1", "map merge requires map"),
        ("[a]", "a document must be an object"),
        ("a: 1\n---\nb: 2", "2 objects where one must be"),
        ("", "0 objects where one must be"),
        ("a: \x07", "control characters are not allowed"),
        ("a:\n\t- b", "cannot start any token"),
        ("a: " + "[" * (DEEPEST + 1), "exceeded max depth"),
        ("a: " + "[" * 100_000, "exceeded max depth"),
        ("{" * 100_000, "exceeded max depth"),
    ],
)
def test_invalid_documents_are_rejected_with_the_line(text, message):
    with pytest.raises(BadRequest) as refusal:
        yaml.load(text)
    assert refusal.value.message.startswith("yaml: ")
    assert message in refusal.value.message


def test_the_size_of_expanded_aliases_is_limited():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(BadRequest, match="excessive aliasing"):
        yaml.load("\n".join(lines))


def test_a_large_document_is_rejected():
    with pytest.raises(TooLarge):
        yaml.load("a: " + "x" * yaml.LARGEST_BYTES)


def test_dumped_yaml_has_sorted_keys_and_quotes():
    texts = ["y", "on", "0o644", "1e3", "1_0", "2024-01-01", ""]
    assert yaml.dump({"b": texts, "a": {"z": 1.5, "y": [1, True, None, "plain"]}}).split("\n") == [
        "a:",
        "  'y':",
        "  - 1",
        "  - true",
        "  - null",
        "  - plain",
        "  z: 1.5",
        "b:",
        *(f"- '{text}'" for text in texts),
        "",
    ]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(-1e9, 1e9)
    | st.text(max_size=8)
    | st.sampled_from(["y", "no", "0644", "1e3", "<<", "=", "~", "1:30", "-", "? a", "# b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=3))
def test_documents_round_trip(document):
    assert same(yaml.load(yaml.dump(document)), document)


@given(st.text(alphabet="ab1:{}[]&*!<-?#|'\"\n ,~", max_size=30) | st.binary(max_size=30))
def test_any_text_is_parsed_or_rejected(text):
    try:
        found = list(yaml.load_all(text))
    except ApiError:
        return
    assert all(isinstance(document, dict) for document in found)


def test_the_last_duplicate_key_wins_if_duplicates_are_reported():
    found = []
    assert yaml.load("a: 1\nb:\n  c: 1\n  c: 2\na: 3", found) == {"a": 3, "b": {"c": 2}}
    assert found == ['line 4: key "c" already set in map', 'line 5: key "a" already set in map']


@pytest.mark.parametrize("item", ["- 1", "- {}", "- []"])
def test_a_text_has_a_bounded_number_of_values(item):
    assert len(yaml.load("\n".join(["a:", *[item] * 1000]))["a"]) == 1000
    with pytest.raises(TooLarge, match="limit is 100000 values"):
        yaml.load("\n".join(["a:", *[item] * (2 * MAX_VALUES)]))
