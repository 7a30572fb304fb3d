import string

import pytest
from hypothesis import given, strategies as st

from corral.api.errors import BadRequest
from corral.api.selectors import (
    LONGEST,
    NOTHING,
    FieldSelector,
    FieldTerm,
    label_selector,
    parse_fields,
    parse_labels,
)

WORDS = st.text(alphabet=string.ascii_lowercase + string.digits, min_size=1, max_size=4)
NO_LABEL_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
NO_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
LABELS = st.dictionaries(WORDS, WORDS, max_size=3)


@pytest.mark.parametrize(
    ("text", "canonical", "matching", "other"),
    [
        ("app=web", "app=web", {"app": "web"}, {"app": "db"}),
        ("app==web", "app==web", {"app": "web"}, {}),
        ("app!=web", "app!=web", {}, {"app": "web"}),
        ("app=web,tier!=a", "app=web,tier!=a", {"app": "web"}, {"app": "web", "tier": "a"}),
        ("app=web,app=web", "app=web,app=web", {"app": "web"}, {"app": "db"}),
        ("app=web,app in (web,db)", "app=web,app in (db,web)", {"app": "web"}, {"app": "db"}),
        ("app=web,app!=db", "app=web,app!=db", {"app": "web"}, {"app": "db"}),
        ("tier in (b, a)", "tier in (a,b)", {"tier": "a"}, {"tier": "c"}),
        ("tier notin (a,b)", "tier notin (a,b)", {}, {"tier": "b"}),
        ("tier", "tier", {"tier": ""}, {}),
        ("!tier", "!tier", {}, {"tier": ""}),
        ("n>3", "n>3", {"n": "4"}, {"n": "3"}),
        ("n < 3", "n<3", {"n": "-2"}, {"n": "x"}),
        ("app=", "app=", {"app": ""}, {}),
        ("app in (,)", "app in ()", {"app": ""}, {}),
        ("a in (x,,y)", "a in (,x,y)", {"a": ""}, {"a": "z"}),
        (" b = 1 ,a=2,", None, None, None),
        ("b=1,a=2", "a=2,b=1", {"a": "2", "b": "1"}, {"a": "2"}),
        (
            "myvmi=myvmi,tier in (b,a)",
            "myvmi=myvmi,tier in (a,b)",
            {"myvmi": "myvmi", "tier": "b"},
            {"myvmi": "myvmi"},
        ),
        ("kubevirt.io/domain=x", "kubevirt.io/domain=x", {"kubevirt.io/domain": "x"}, {}),
        ("in in (in)", "in in (in)", {"in": "in"}, {}),
    ],
)
def test_label_selectors(text, canonical, matching, other):
    if canonical is None:
        with pytest.raises(BadRequest):
            parse_labels(text)
        return
    selector = parse_labels(text)
    assert str(selector) == canonical
    assert selector.matches(matching)
    assert not selector.matches(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,", "found '', expected: identifier after ','"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "a in ()",
            (
                "unable to parse requirement: values: Invalid value: []: "
                "for 'in', 'notin' operators, values set can't be empty"
            ),
        ),
        (
            "n>x",
            (
                'unable to parse requirement: values[0]: Invalid value: "x": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
        ("a=-", f'unable to parse requirement: values[0][a]: Invalid value: "-": {NO_LABEL_VALUE}'),
        ("-a", f'unable to parse requirement: <nil>: Invalid value: "-a": {NO_LABEL_KEY}'),
    ],
)
def test_invalid_label_selectors_have_kubernetes_messages(text, message):
    with pytest.raises(BadRequest) as refusal:
        parse_labels(text)
    assert refusal.value.message == message


def test_contradictory_requirements_match_nothing():
    assert not parse_labels("app=web,app=db").matches({"app": "web"})
    assert not parse_labels("app=web,app=db").matches({"app": "db"})


def test_selectors_in_objects():
    selector = label_selector(
        {
            "matchLabels": {"z": "1", "app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "old", "operator": "DoesNotExist"},
                {"key": "new", "operator": "Exists"},
                {"key": "x", "operator": "NotIn", "values": ["y"]},
            ],
        }
    )
    assert str(selector) == "app=web,new,!old,tier in (a,b),x notin (y),z=1"
    assert selector.matches({"app": "web", "z": "1", "tier": "a", "new": ""})
    assert not selector.matches({"app": "web", "z": "1", "tier": "a"})


def test_no_selector_matches_nothing_and_an_empty_one_everything():
    assert label_selector(None) is NOTHING
    assert not NOTHING.matches({})
    assert NOTHING
    everything = label_selector({})
    assert everything.matches(None)
    assert not everything


@pytest.mark.parametrize(
    "document",
    [
        {"matchExpressions": [{"key": "a", "operator": "Near"}]},
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        {"matchLabels": {"a/b/c": "d"}},
        {"matchLabels": {"a": "b c"}},
    ],
)
def test_invalid_selectors_in_objects_are_rejected(document):
    with pytest.raises(BadRequest):
        label_selector(document)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("space", [" ", "\t\n", "\r"])
def test_long_white_space_is_parsed_fast(space):
    text = f"a{space * (LONGEST // 2 - 1)}"
    assert str(parse_labels(text)) == "a"


@pytest.mark.parametrize("parse", [parse_labels, parse_fields])
def test_a_too_long_selector_is_rejected(parse):
    with pytest.raises(BadRequest, match="65536 characters at most, not 65537"):
        parse("a" * (LONGEST + 1))


@pytest.mark.parametrize(
    "text",
    ["-" * LONGEST, f"a in ({'-,' * 30_000}-)", f"a={'-' * 60_000}", f"a,,{'b' * 60_000}"],
)
def test_messages_truncate_long_selectors(text):
    with pytest.raises(BadRequest) as refusal:
        parse_labels(text)
    assert len(refusal.value.message) < 1000


def test_messages_limit_the_number_of_values():
    values = [f"-{number}" for number in range(10_000)]
    with pytest.raises(BadRequest) as refusal:
        label_selector({"matchExpressions": [{"key": "a", "operator": "In", "values": values}]})
    assert refusal.value.message.count("Invalid value") == 100


@given(LABELS, LABELS)
def test_equality_selects_supersets(target, labels):
    matches = all(labels.get(key) == value for key, value in target.items())
    assert label_selector({"matchLabels": target}).matches(labels) == matches


@given(st.text(alphabet="ab1=!,()<> \\in", max_size=12))
def test_any_text_is_a_label_selector_or_a_bad_request(text):
    try:
        selector = parse_labels(text)
    except BadRequest:
        return
    assert parse_labels(str(selector)) == selector


def test_field_selectors():
    selector = parse_fields("metadata.name==a,status.phase!=Running")
    selector.check({"metadata.name", "status.phase"})
    assert selector.matches({"metadata.name": "a", "status.phase": "Pending"})
    assert not selector.matches({"metadata.name": "a", "status.phase": "Running"})
    assert not selector.matches({"metadata.name": "b", "status.phase": "Pending"})


def test_an_unsupported_field_is_rejected():
    with pytest.raises(BadRequest, match=r"^field label not supported: spec\.replicas$"):
        parse_fields("metadata.name=a,spec.replicas=3").check({"metadata.name"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        (r"a=b\n", r"invalid field selector: invalid escape sequence: \n"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_invalid_field_selectors_have_kubernetes_messages(text, message):
    with pytest.raises(BadRequest) as refusal:
        parse_fields(text)
    assert refusal.value.message == message


@given(st.lists(st.builds(FieldTerm, WORDS, st.text(max_size=8), st.booleans()), max_size=3))
def test_field_selectors_round_trip(terms):
    selector = FieldSelector(tuple(terms))
    assert parse_fields(str(selector)) == selector


def test_the_exact_value_of_a_field():
    selector = parse_fields("metadata.name=a,metadata.namespace!=b")
    assert selector.exact("metadata.name") == "a"
    assert selector.exact("metadata.namespace") is None
