"""String formats of kube-openapi; others are not checked."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from corral.api.time import parse_duration, parse_rfc3339

_HOST = re.compile(
    r"(?=.{1,255}$)[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*",
    re.ASCII,
)
_EMAIL = re.compile(r"[^@\s<>]{1,64}@[^@\s<>]{1,255}", re.ASCII)
_UUID = r"[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_MAC = re.compile(r"([0-9A-Fa-f]{2}([:-])){1}([0-9A-Fa-f]{2}\2){4}[0-9A-Fa-f]{2}", re.ASCII)
_CREDIT_CARD = re.compile(r"[0-9 -]{13,23}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", re.ASCII)
_HEX_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})", re.ASCII)
_PART = r"(25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})"
_RGB_COLOR = re.compile(rf"rgb\(\s*{_PART}\s*,\s*{_PART}\s*,\s*{_PART}\s*\)", re.ASCII)
_ISBN10 = re.compile(r"[0-9]{9}[0-9X]", re.ASCII)
_ISBN13 = re.compile(r"[0-9]{13}", re.ASCII)
_OBJECT_ID = re.compile(r"[0-9a-fA-F]{24}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)

Predicate = Callable[[str], bool]


def _matches(pattern: re.Pattern[str]) -> Predicate:
    return lambda text: pattern.fullmatch(text) is not None


def parses(parser: Callable[..., object]) -> Callable[..., bool]:
    """Return a predicate: whether a parser accepts a text, without ValueError."""

    def fits(*arguments: Any) -> bool:
        try:
            parser(*arguments)
        except ValueError:
            return False
        return True

    return fits


def _uuid(version: str = "[0-9a-f]", variant: str = "[0-9a-f]") -> Predicate:
    return _matches(re.compile(_UUID % (version, variant), re.ASCII | re.IGNORECASE))


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return len(text) == len("2006-01-02") and bool(date.fromisoformat(text))
    return False


def _is_uri(text: str) -> bool:
    with suppress(ValueError):
        found = urlsplit(text)
        return bool(found.scheme or text.startswith("/")) and text.isprintable()
    return False


def _is_network(text: str) -> bool:
    with suppress(ValueError):
        return "/" in text and bool(ip_network(text, strict=False))
    return False


def _is_isbn(text: str) -> bool:
    plain = re.sub(r"[\s-]", "", text)
    return bool(_ISBN10.fullmatch(plain) or _ISBN13.fullmatch(plain))


FORMATS: Final[Mapping[str, Predicate]] = {
    "bsonobjectid": _matches(_OBJECT_ID),
    "byte": _is_base64,
    "cidr": _is_network,
    "creditcard": _matches(_CREDIT_CARD),
    "date": _is_date,
    "date-time": parses(parse_rfc3339),
    "datetime": parses(parse_rfc3339),
    "duration": parses(parse_duration),
    "email": _matches(_EMAIL),
    "hexcolor": _matches(_HEX_COLOR),
    "hostname": _matches(_HOST),
    "ip": parses(ip_address),
    "ipv4": parses(IPv4Address),
    "ipv6": parses(IPv6Address),
    "isbn": _is_isbn,
    "isbn10": lambda text: _ISBN10.fullmatch(re.sub(r"[\s-]", "", text)) is not None,
    "isbn13": lambda text: _ISBN13.fullmatch(re.sub(r"[\s-]", "", text)) is not None,
    "k8s-long-name": lambda text: all(map(_LABEL.fullmatch, text.split("."))) and len(text) <= 253,
    "k8s-short-name": _matches(_LABEL),
    "mac": _matches(_MAC),
    "rgbcolor": _matches(_RGB_COLOR),
    "ssn": _matches(_NUMBER),
    "uri": _is_uri,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
}
