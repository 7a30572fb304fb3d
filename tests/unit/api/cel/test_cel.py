"""Tests of expressions: what they say, how they fail, and that they end."""

import pytest

from corral.api.cel import CelError, compile_expression

OBJECT = {"object": "dyn"}
POD = {
    "metadata": {"name": "a", "labels": {"app": "x"}},
    "spec": {"replicas": 3, "ratio": 0.5, "disks": [{"name": "root"}, {"name": "data"}]},
    "empty": None,
}


def value(text, **bindings):
    program = compile_expression(text, dict.fromkeys(bindings, "dyn"))
    return program.run(bindings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("object.spec.replicas <= 5", True),
        ("object.spec.disks.all(disk, disk.name.matches('^[a-z]+$'))", True),
        ("object.spec.disks.map(disk, disk.name)", ["root", "data"]),
        ("has(object.metadata.annotations)", False),
        ("object.metadata.?labels['app'].orValue('none')", "x"),
        ("object.metadata.?annotations['a'].orValue('none')", "none"),
        ("object.empty == null", True),
        ("object.spec.ratio + 1.0", 1.5),
        ("'%s has %d'.format([object.metadata.name, object.spec.replicas])", "a has 3"),
        ("object.spec.disks.map(disk, disk.name).indexOf('data')", 1),
        ("[3, 1, 2].sort()", [1, 2, 3]),
        ("[1, 2].isSorted() && ![2, 1].isSorted()", True),
        ("[1, 2, 2].sum() == 5 && [1, 2].min() == 1 && [1, 2].max() == 2", True),
        ("[1, 1, 2].distinct()", [1, 2]),
        ("[1, 2, 3].reverse() + [].reverse()", [3, 2, 1]),
        ("[1, [2, [3]], []].flatten()", [1, 2, [3]]),
        ("[[[1]], [[2], 3], 4].flatten(2)", [1, 2, 3, 4]),
        ("[[1]].flatten(0) == [[1]] && [[[1]]].flatten(9) == [1]", True),
        ("object.spec.disks.map(disk, [disk.name, disk.name]).flatten().size()", 4),
        ("lists.range(3) + lists.range(0) + lists.range(-1)", [0, 1, 2]),
        ("[1, true, 1.0, [true], [1], {'a': true}, {'a': 1}].distinct().size()", 6),
        ("[1].indexOf(true) + [true, 1, true].indexOf(1) + [1, true, 1].lastIndexOf(true)", 1),
        ("[0].lastIndexOf(false)", -1),
        ("sets.contains([1], [true]) || sets.equivalent([0], [false])", False),
        ("sets.intersects([[1]], [[true]]) || sets.contains([{'a': 0}], [{'a': false}])", False),
        ("sets.contains([true, 1], [1.0]) && sets.intersects([true], [false, true])", True),
        ("[9223372036854775807, -9223372036854775808].sum()", -1),
        ("[9223372036854775807.0, 1].sum() > 0.0", True),
        ("[].sum() == 0", True),
        ("sets.contains([1, 2], [2]) && !sets.intersects([1], [2])", True),
        ("quantity('1Gi').isGreaterThan(quantity('500M'))", True),
        ("quantity('1') == quantity('1000m')", True),
        ("quantity('2k').add(quantity('500')).asInteger()", 2500),
        ("isQuantity('1Gi') && !isQuantity('much')", True),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", True),
        ("cidr('10.0.0.0/8').containsIP(ip('11.1.2.3'))", False),
        ("cidr('10.0.0.0/8').containsCIDR('10.2.0.0/16')", True),
        ("isIP('::1') && !isIP('::ffff:1.2.3.4') && ip('fe80::1').isLinkLocalUnicast()", True),
        ("isCIDR('10.0.0.0/33')", False),
        ("url('https://a.example:8443/x?y=1').getHost()", "a.example:8443"),
        ("url('https://a.example/x?y=1').getQuery()", {"y": ["1"]}),
        ("isURL('a.example') || isURL('http://a b')", False),
    ],
)
def test_expressions_have_the_values_of_kubernetes(text, expected):
    assert value(text, object=POD) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("object.spec.nope == 1", "no such key: nope"),
        ("1 / (object.spec.replicas - 3)", "division by zero"),
        ("[9223372036854775807, object.spec.replicas, -3].sum() > 0", "integer overflow"),
        ("[-9223372036854775807, -2].sum() < 0", "integer overflow"),
        ("object.spec.replicas + 'a'", "no such overload"),
        ("quantity(object.metadata.name).asInteger()", "quantities must match"),
        ("[].min()", "min called on empty list"),
        ("[[1]].flatten(-1)", "level must be non-negative"),
        ("lists.range(object.spec.replicas * 10000)", "more than 10000 numbers"),
        ("object.metadata.name.matches('[')", "invalid regular expression"),
    ],
)
def test_an_evaluation_error_has_its_cause(text, message):
    with pytest.raises(CelError, match=message):
        value(text, object=POD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nobody == 1", r"ERROR: <input>:1:1: undeclared reference to 'nobody' \(in container ''"),
        ("1 + 'a'", r"found no matching overload for '_\+_' applied to '\(int, string\)'"),
        ("1 +", r"ERROR: <input>:1:4: Syntax error"),
        ("x" * 20_000, "at most 16384 characters"),
    ],
)
def test_syntax_errors_have_a_position(text, message):
    with pytest.raises(CelError, match=message):
        compile_expression(text, OBJECT)


def test_a_program_has_the_type_of_its_value():
    of = {"object": "dyn", "name": "string"}
    assert compile_expression("object.a == 1", of).returns == "bool"
    assert compile_expression("name + 'a'", of).returns == "string"
    assert compile_expression("object.a", of).returns == "dyn"


def test_a_value_out_of_range_is_an_error_of_one_evaluation():
    program = compile_expression("object.a == 1", OBJECT)
    with pytest.raises(CelError):
        program.run({"object": {"a": 2**70}})
    assert program.run({"object": {"a": 1}}) is True


@pytest.mark.parametrize(
    "text",
    [
        "items.all(a, items.all(b, items.all(c, a + b + c >= 0)))",
        "items.map(a, items.map(b, 'x')).size() > 0",
    ],
)
def test_nested_loops_over_much_data_are_rejected(text):
    with pytest.raises(CelError, match="cost limit exceeded"):
        value(text, items=list(range(1000)))


@pytest.mark.parametrize("text", ["(" * 5000, "[" * 5000, "!" * 5000 + "true &&"])
def test_deep_nesting_is_rejected(text):
    with pytest.raises(CelError):
        compile_expression(text, OBJECT)


LONG = {"s": "a" * 1_000_000, "items": ["a"] * 9000}


@pytest.mark.parametrize(
    "text",
    [
        "object.items.all(x, object.s.contains(x))",
        "object.items.all(x, object.s.matches('b' + x))",
        "object.items.map(x, x).size() > 0",
        "object.s.replace('a', object.s).size() > 0",
        "[object.s]" + ".map(x, x + x)" * 12 + ".size() > 0",
        "object.items.map(x, object.s + object.s).size() > 0",
    ],
)
def test_expensive_expressions_are_not_evaluated(text):
    with pytest.raises(CelError, match="cost limit exceeded"):
        value(text, object=LONG)


@pytest.mark.parametrize(
    "text",
    [
        "object.items.all(x, x.matches('^[a-z]+$'))",
        "object.items.exists(x, x == 'b') || object.s.size() > 5",
        "object.items.filter(x, x == 'a').map(x, x + x).size() == 100",
        "object.s.matches('^a*$') && object.s.contains('aaa')",
        "object.s.replace('a', 'bb').size() == 40000",
    ],
)
def test_a_single_pass_over_much_data_is_allowed(text):
    much = {"s": "a" * 20_000, "items": ["a"] * 100}
    assert value(text, object=much) is True


def test_nested_loops_over_small_values_are_allowed():
    disks = [{"name": f"d{index}", "tags": ["a", "b"]} for index in range(40)]
    text = "object.disks.all(d, d.tags.all(t, t in object.tags) && d.name.matches('^d[0-9]+$'))"
    assert value(text, object={"disks": disks, "tags": ["a", "b", "c"]}) is True
    twice = "object.disks.all(a, object.disks.exists_one(b, a.name == b.name))"
    assert value(twice, object={"disks": disks}) is True
