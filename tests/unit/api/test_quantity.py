from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from corral.api.quantity import LARGEST, NANO, ZERO, Amount, Form, amount, bytes_of, parse

BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SMALL = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
SUFFIXES = {"": Fraction(1), **SMALL, **DECIMAL, **BINARY}


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("64M", "64M"),
        ("64000000", "64M"),
        ("0.5", "500m"),
        ("1.5G", "1500M"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("0.5Mi", "512Ki"),
        ("0.1Ki", "102400m"),
        ("0", "0"),
        ("0Mi", "0"),
        ("-0", "0"),
        ("-1500m", "-1500m"),
        ("12e6", "12e6"),
        ("12E6", "12e6"),
        ("1200e-3", "1200e-3"),
        ("1E", "1E"),
        ("+5", "5"),
        (".5", "500m"),
        ("5.", "5"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("9e99999999999999", "9223372036854775807"),
        ("1e-99999999999999", "1e-9"),
        ("100Ei", "9223372036854775807"),
    ],
)
def test_quantities_are_printed_canonically(written, canonical):
    assert str(parse(written)) == canonical


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("", "regular expression"),
        ("Mi", "numeric part"),
        ("64MiB", "regular expression"),
        ("1e", "suffix"),
        ("1KiMi", "suffix"),
        ("one", "regular expression"),
        ("1 Gi", "regular expression"),
        ("1m5", "suffix"),
        ("\u0661", "regular expression"),
        ("1" * 5000, "regular expression"),
        ("1\n", "regular expression"),
    ],
)
def test_an_invalid_quantity_is_rejected(written, fault):
    with pytest.raises(ValueError, match=fault):
        parse(written)


def test_amounts_of_things():
    assert bytes_of("64M") == 64_000_000
    assert bytes_of("128Mi") == 134_217_728
    assert bytes_of(1024) == 1024
    assert bytes_of("1500m") == 2
    assert parse("0.5").rounded_up(-3) == parse(0.5).rounded_up(-3) == 500
    assert parse("1n").rounded_up(-3) == 1


def test_an_invalid_amount_is_zero():
    assert amount(None) == amount("rubbish") == ZERO
    assert amount("1Ki") == parse(1024)


def test_sums_keep_the_format_of_the_first_quantity():
    assert str(parse("1Gi") + parse("64M")) == "1111076Ki"
    assert str(parse("1Gi") + parse("1024M") - parse("1024M")) == "1Gi"
    assert str(parse("0") + parse("1Gi")) == "1Gi"


@given(
    number=st.decimals(min_value=0, max_value=10**6, places=4),
    suffix=st.sampled_from(sorted(SUFFIXES)),
    sign=st.sampled_from(["", "+", "-"]),
)
def test_the_value_is_exact_and_rounds_away_from_zero(number, suffix, sign):
    exact = Fraction(number) * SUFFIXES[suffix] * NANO
    nanos = min(-(-exact.numerator // exact.denominator), LARGEST)
    assert parse(f"{sign}{number:f}{suffix}").nanos == (-nanos if sign == "-" else nanos)


@given(st.integers(-LARGEST, LARGEST), st.sampled_from(Form))
def test_the_canonical_form_has_the_same_value(nanos, form):
    amount = Amount(nanos, form)
    assert parse(str(amount)) == amount
    assert "." not in str(amount)


@given(st.integers(), st.integers())
def test_quantities_are_ordered_by_value(left, right):
    assert (Amount(left) < Amount(right, Form.BINARY)) == (left < right)
    assert (Amount(left) == Amount(right, Form.BINARY)) == (left == right)


@given(st.text(alphabet="0123456789.+-eEinumkKMGTPx ", max_size=12))
def test_any_text_is_a_quantity_or_a_value_error(text):
    try:
        amount = parse(text)
    except ValueError:
        return
    assert parse(str(amount)) == amount
