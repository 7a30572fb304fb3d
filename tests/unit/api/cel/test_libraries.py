"""Tests of Kubernetes' own functions for patterns, versions, formats, maps and rights."""

import pytest

from corral.api.cel import CelError, compile_expression
from corral.api.cel.authorizer import AccessCheck, Authorizer

POD = {"name": "web-1", "text": "aabbaab", "sizes": {"a": 1, "b": 2}, "release": "v1.2"}

HERE = AccessCheck("", "", "pods", "", "here", "a")


class Recorder:
    """An authorizer that allows everything, and records the checks."""

    def __init__(self):
        self.checks, self.reasons = [], []

    def allows(self, check):
        self.checks.append(check)
        return True

    def why(self, check):
        self.reasons.append(check)
        return "why"


def value(text, **given):
    given = {"object": POD, **given}
    kinds = {name: "map" if name == "authorizer" else "dyn" for name in given}
    return compile_expression(text, kinds).run(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("object.text.find('a(b+)a')", "abba"),
        ("object.text.find('c')", ""),
        ("object.text.find('[(]')", ""),
        (r"'f(x)(y'.find('\\Q(y\\E|[]()]z')", "(y"),
        (r"'f(x'.find('(?P<name>\\()x')", "(x"),
        ("object.text.findAll('a+')", ["aa", "aa"]),
        ("object.text.findAll('a+', 1)", ["aa"]),
        ("object.sizes.transformMap(k, v, v + 1)", {"a": 2, "b": 3}),
        ("object.sizes.transformMap(k, v, k != 'a', v)", {"b": 2}),
        ("object.sizes.transformMapEntry(k, v, {v: k})", {1: "a", 2: "b"}),
        ("object.sizes.transformList(k, v, v > 1, k)", ["b"]),
        ("object.sizes.all(k, v, v > 0) && !object.sizes.exists(k, v, k == 'c')", True),
        ("[3, 4].existsOne(index, each, each == index + 3)", False),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", True),
        ("semver('1.0.0').compareTo(semver('1.0.0-rc.1'))", 1),
        ("semver('1.0.0-rc.2').compareTo(semver('1.0.0-rc.10'))", -1),
        ("semver('1.0.0+a') == semver('1.0.0+b')", True),
        ("isSemver(object.release) || isSemver('01.0.0') || isSemver('1.0')", False),
        ("isSemver('v1.0', true) && !isSemver('v1.0', false) && !isSemver('x', true)", True),
        ("semver(object.release, true).minor()", 2),
        ("semver('01.00.1', true) == semver('1.0.1')", True),
        ("format.dns1123Label().validate('a-b').hasValue()", False),
        ("format.dns1035LabelPrefix().validate('a-').hasValue()", False),
        ("format.uuid().validate(object.name).value()", ["does not match the UUID format"]),
        ("format.named('labelValue').value().validate('-').value().size()", 1),
        ("format.named('none').hasValue()", False),
        ("cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && string(ip('::1')) == '::1'", True),
        ("[?object.?name, ?object.?nope]", ["web-1"]),
        ("object.?nope.or(object.?name).value()", "web-1"),
    ],
)
def test_functions_have_the_values_of_kubernetes(text, expected):
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("object.text.find('[')", "missing ]"),
        ("object.sizes.transformMapEntry(k, v, {'x': v})", "key 'x' already exists"),
        ("semver('1.2')", "'1.2' is no semantic version"),
        ("format.named('none').value()", "optional.none"),
        ("object.sizes.major()", "no such overload"),
        ("object.sizes.hasValue()", "no such overload"),
        ("{'kubernetes.URL': 5}.getHost()", "no such overload"),
        ("{'kubernetes.Quantity': [1]}.asInteger()", "no such overload"),
        ("{'net.CIDR': 5}.ip()", "no such overload"),
    ],
)
def test_an_evaluation_error_has_a_message(text, message):
    with pytest.raises(CelError, match=message):
        value(text)


@pytest.mark.parametrize("bits", ["1_0", "٣", " 3", "+3", "03", "33", ""])
def test_a_network_has_its_bits_as_a_number(bits):
    assert value(f"isCIDR('1.2.3.4/{bits}')") is False


@pytest.mark.parametrize(
    "text",
    [
        "object.?name",
        "[object.?name].sum()",
        "[1].indexOf(object.?name)",
        "dyn(object.?name)",
        "{'a': optional.none()}.sign()",
        "[1].map(x, optional.of(x))",
        "[1].transformMap(i, x, optional.of(x))",
        "cel.bind(o, object.?name, [o].sum())",
        "[optional.of(1)].exists(x, x.hasValue())",
    ],
)
def test_optional_values_that_would_crash_the_library_are_rejected(text):
    with pytest.raises(CelError, match="an optional value cannot be a result"):
        compile_expression(text, {"object": "dyn"})


@pytest.mark.parametrize(
    "text",
    [
        "object.text.findAll('a.*b|a').size() > 0",
        "object.items.transformMap(i, x, x).size() > 0",
        "object.items.all(x, authorizer.path(x).check('get').allowed())",
    ],
)
def test_expensive_expressions_are_not_evaluated(text):
    much = {"text": "a" * 100_000, "items": ["a"] * 9000}
    recorder = Authorizer(lambda _check: True, str, AccessCheck(""))
    with pytest.raises(CelError, match="cost limit exceeded"):
        value(text, object=much, authorizer=recorder)


@pytest.mark.parametrize(
    ("text", "check"),
    [
        (
            (
                "authorizer.group('apps').resource('deployments').subresource('scale')"
                ".namespace('x').name('y').check('update').allowed()"
            ),
            AccessCheck("update", "apps", "deployments", "scale", "x", "y"),
        ),
        (
            "authorizer.requestResource.name('other').check('get').allowed()",
            AccessCheck("get", "", "pods", "", "here", "other"),
        ),
        (
            "authorizer.serviceAccount('ns', 'sa').path('/healthz').check('get').reason() == 'why'",
            AccessCheck("get", path="/healthz", account=("ns", "sa")),
        ),
        (
            "!authorizer.group('').resource('pods').labelSelector('a=b').check('list').errored()",
            AccessCheck("list", "", "pods"),
        ),
    ],
)
def test_access_checks(text, check):
    recorder = Recorder()
    assert value(text, authorizer=Authorizer(recorder.allows, recorder.why, HERE)) is True
    assert recorder.checks == [check]


def test_decisions_are_cached_and_reasons_fetched_on_request():
    recorder = Recorder()
    check = "authorizer.path('/x').check('get')"
    again = f"[1, 2, 3].all(x, {check}.allowed()) && {check}.allowed()"
    assert value(again, authorizer=Authorizer(recorder.allows, recorder.why, HERE)) is True
    assert recorder.checks == [AccessCheck("get", path="/x")]
    assert recorder.reasons == []
    twice = f"{check}.reason() == 'why' && {check}.reason() != ''"
    assert value(twice, authorizer=Authorizer(recorder.allows, recorder.why, HERE)) is True
    assert recorder.reasons == [AccessCheck("get", path="/x")]


def test_a_forged_decision_has_no_reason():
    forged = "{'kubernetes.authorization.Decision': {'fields': %s}}.reason() == ''"
    recorder = Recorder()
    for what in ("{}", "5", "{'verb': ['get']}", "{'nonsense': ''}"):
        with pytest.raises(CelError):
            value(forged % what, authorizer=Authorizer(recorder.allows, recorder.why, HERE))
    with pytest.raises(CelError, match="there is no authorizer for this expression"):
        value(forged % "{'verb': ''}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("authorizer.nobody", r"ERROR: <input>:1:11: undefined field 'nobody'"),
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        ("authorizer.serviceAccount('a.b', 'c').path('/').check('x').allowed()", "namespace"),
        ("authorizer.check('get').allowed()", "no such overload"),
        ("{'kubernetes.authorization.Decision': {'allowed': 1}}.allowed()", "no such overload"),
        ("{'kubernetes.authorization.Decision': {'allowed': true}}.reason()", "no such overload"),
        (
            "{'kubernetes.authorization.ResourceCheck': {'group': ['a']}}.check('get').allowed()",
            "no such overload",
        ),
        (
            "{'kubernetes.authorization.ResourceCheck': {'kind': 'a'}}.check('get').allowed()",
            "no such overload",
        ),
    ],
)
def test_an_invalid_access_check_is_refused(text, message):
    with pytest.raises(CelError, match=message):
        value(text, authorizer=Authorizer(lambda _check: True, str, HERE))
