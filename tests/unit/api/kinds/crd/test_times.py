"""CEL rules over strings with formats: times, durations, bytes."""

import pytest
from tests.unit.api.kinds.crd.test_custom_kinds import messages, of

TIMED = {
    "created": {"type": "string", "format": "date-time"},
    "expired": {"type": "string", "format": "date-time", "nullable": True},
    "ttl": {"type": "string", "format": "duration"},
    "day": {"type": "string", "format": "date"},
    "raw": {"type": "string", "format": "byte"},
    "times": {"type": "array", "items": {"type": "string", "format": "date-time"}},
    "maybe": {
        "type": "array",
        "nullable": True,
        "items": {"type": "string", "format": "date-time"},
    },
    "tables": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "string", "format": "date-time"}},
    },
    "raws": {"type": "array", "items": {"type": "string", "format": "byte"}},
    "open": {
        "type": "array",
        "items": {"type": "string", "format": "date-time", "nullable": True},
    },
    "spans": {"type": "object", "additionalProperties": {"type": "string", "format": "duration"}},
}
MOMENT = {
    "created": "2026-01-01T00:00:00Z",
    "expired": "2026-01-01T01:00:00+00:00",
    "ttl": "59m",
    "day": "2026-01-02",
    "raw": "YWI=",
    "times": ["2026-01-01T00:00:00Z"],
    "tables": [["2026-01-01T01:00:00+01:00"]],
    "raws": ["YWI="],
    "open": [None],
    "spans": {"a": "1h"},
}


@pytest.mark.parametrize(
    "rule",
    [
        "has(self.expired) && self.created + self.ttl < self.expired",
        "self.ttl == duration('59m') && self.day.getFullYear() == 2026 && self.raw == b'ab'",
        "self.times.all(t, t.getMonth() == 0) && self.times[0] < self.expired",
        "self.spans.all(k, self.spans[k] < duration('2h')) && self.spans['a'] == duration('60m')",
        "self.spans.all(k, v, v == duration('1h'))",
        "self.created in self.times && self.times.exists(t, t == self.created)",
        "cel.bind(c, self.created, c < self.expired)",
        "self.?created.orValue(timestamp('2020-01-01T00:00:00Z')) < self.expired",
        "self.?created.value() < timestamp(self.expired)",
        "string(self.created) == '2026-01-01T00:00:00Z' && self.created == oldSelf.created",
        "{'a': self.ttl}.a > duration('1m')",
        "self.created in [self.created] && timestamp('2026-01-01T00:00:00Z') in self.times",
        "self.times == [self.created] && [self.created] == self.times",
        "dyn(self.times) == [self.created]",
        "self.times.slice(0, 1)[0] == self.created && self.times.slice(0, 1) == self.times",
        "self.times.reverse()[0] == self.created && self.times.reverse() == self.times",
        "self.times.indexOf(self.created) == 0 && self.times.size() == 1 && self.times.isSorted()",
        "self.times.max() < self.expired && [self.created, self.expired].min() == self.created",
        "[self.created, self.expired].max() > timestamp('2026-01-01T00:00:00Z')",
        "[self.created, self.created].distinct() == self.times && self.times.sort() == self.times",
        "self.times.map(t, t) == self.times",
        "self.times.filter(t, t == self.created) == self.times",
        "self.times + [self.created] == [self.created, self.created]",
        "cel.bind(t, self.times, t[0] == self.created && t == [self.created] && t.max() == t[0])",
        "self.?times.orValue([]) == [self.created] && [?self.?created] == self.times",
        "self.spans == {'a': duration('1h')} && sets.equivalent(self.times, [self.created])",
        "[self.ttl, self.spans.a].sum() == duration('1h59m') && self.raws == [b'ab']",
        "self.tables == [[self.created]] && self.tables.slice(0, 1)[0] == self.times",
        "self.tables.all(row, row == self.times) && self.tables[0][0] == self.created",
        "self.open == null || self.open.size() == 1",
        "self.raw.size() == 2 && size(self.raw) == 2 && self.raws[0].size() == 2",
        "self.raws.size() == 1 && self.spans.size() == 1 && size(self.tables[0]) == 1",
    ],
)
def test_formatted_strings_have_the_types_of_their_formats(rule):
    kind = of({"x-kubernetes-validations": [{"rule": rule}]}, **TIMED)
    assert messages(kind, MOMENT, {**MOMENT, "ttl": "1h"}) == ([], [])


@pytest.mark.parametrize(
    "rule",
    [
        "!has(self.expired) || self.expired == null || self.created < self.expired",
        "null == self.expired && !(self.expired != null) && self.expired == oldSelf.expired",
        "self.expired != self.created && self.created != self.expired",
        "self.expired != oldSelf.created && [self.expired] != [self.created]",
        "cel.bind(e, self.expired, e == null || e < self.created)",
        "self.maybe == null || self.maybe.max() < self.created",
        "self.maybe == null || self.maybe.all(t, t < self.created)",
        "self.maybe != self.times && self.maybe == oldSelf.maybe && null == dyn(self.maybe)",
        "self.open.all(t, t == null || t < self.created) && self.open[0] == null",
        "self.open[0] != self.created && !(self.created in self.open)",
        "self.?expired.orValue(self.created) == null || self.?maybe.hasValue()",
    ],
)
def test_null_is_not_a_time(rule):
    kind = of({"x-kubernetes-validations": [{"rule": rule}]}, **TIMED)
    empty = {**MOMENT, "expired": None, "maybe": None}
    assert messages(kind, empty, {**empty, "ttl": "1h"}) == ([], [])


@pytest.mark.parametrize(
    "rule",
    [
        "self.expired < self.created",
        "self.maybe.max() < self.created",
        "self.open.max() < self.created",
        "[self.created, self.expired].distinct().size() == 2",
    ],
)
def test_null_cannot_be_ordered_with_a_time(rule):
    kind = of({"x-kubernetes-validations": [{"rule": rule}]}, **TIMED)
    empty = {**MOMENT, "expired": None, "maybe": None}
    ((_, message),) = messages(kind, empty)[0]
    assert message == f'Invalid value: "object": no such overload evaluating rule: {rule}'


def test_times_and_strings_are_distinguished():
    rules = [
        {"rule": "self.created + self.ttl > self.expired", "message": "too late"},
        {"rule": "true", "messageExpression": "string(self.ttl)"},
    ]
    kind = of({"x-kubernetes-validations": rules}, **TIMED)
    assert [message for _, message in messages(kind, MOMENT)[0]] == [
        'Invalid value: "object": too late'
    ]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("2600-01-01T00:00:00.999999Z", "2600-01-01T00:00:00.999Z"),
        ("2026-01-01T00:00:00.999999999Z", "2026-01-01T00:00:00.999999Z"),
    ],
)
def test_the_first_and_last_times_are_valid(text, parsed):
    rule = f"self.created == timestamp('{parsed}') && self.times == [timestamp('{parsed}')]"
    kind = of({"x-kubernetes-validations": [{"rule": rule}]}, **TIMED)
    assert messages(kind, {**MOMENT, "created": text, "times": [text]}) == ([], [])


def test_optional_old_values_are_compared_as_times():
    rule = {"rule": "oldSelf.optMap(o, o.created == self.created).orValue(true)"}
    kind = of({"x-kubernetes-validations": [{**rule, "optionalOldSelf": True}]}, **TIMED)
    old = {**MOMENT, "created": "2026-01-01T01:00:00+01:00"}
    assert messages(kind, MOMENT, old) == ([], [])
    assert messages(kind, MOMENT) == ([], [])
