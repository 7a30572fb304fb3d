"""Validation of names, label keys and label values (apimachinery's validation package).

Each function returns why a value is invalid, in the real server's words.
"""

import re
from functools import lru_cache

_LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_SUBDOMAIN = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated suffixes: no vowels, so no words (Kubernetes' rand.String)."""
SUFFIX_LENGTH = 5

_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)


_LONGEST_KEY = 253 + 1 + 63


def label_key_faults(key: str) -> list[str]:
    """Validate a key of labels or annotations: an optional DNS prefix with a slash, and a name."""
    return [] if len(key) <= _LONGEST_KEY and _is_label_key(key) else _key_faults(key)


@lru_cache(maxsize=1024)
def _is_label_key(key: str) -> bool:
    """Report whether a key is valid, cached, because most objects have the same few keys."""
    return not _key_faults(key)


def _key_faults(key: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            "a qualified name "
            + _must_match(_LABEL_NAME, "MyName", "my.name", "123-abc")
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    faults = []
    if prefix:
        faults += [f"prefix part {fault}" for fault in subdomain_faults(prefix)]
    elif slash:
        faults.append("prefix part must be non-empty")
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > 63:
        faults.append("name part must be no more than 63 bytes")
    if not _LABEL_NAME.fullmatch(name):
        faults.append("name part " + _must_match(_LABEL_NAME, "MyName", "my.name", "123-abc"))
    return faults


def label_value_faults(value: str) -> list[str]:
    """Validate a label value: empty, or at most 63 of letters, digits, ``-``, ``_`` and ``.``."""
    faults = []
    if len(value.encode(errors="surrogatepass")) > 63:
        faults.append("must be no more than 63 bytes")
    if value and not _LABEL_NAME.fullmatch(value):
        faults.append(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' "
            "or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
            "'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    return faults


def subdomain_faults(name: str) -> list[str]:
    """Validate a DNS-1123 subdomain, the name of most objects: at most 253, dots allowed."""
    faults = []
    if len(name) > 253:
        faults.append("must be no more than 253 bytes")
    if not _SUBDOMAIN.fullmatch(name):
        faults.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and end with an alphanumeric character (e.g. "
            f"'example.com', regex used for validation is '{_SUBDOMAIN.pattern}')"
        )
    return faults


def label_faults(name: str) -> list[str]:
    """Validate a DNS-1123 label, as of namespaces and containers: at most 63, no dots."""
    faults = []
    if len(name) > 63:
        faults.append("must be no more than 63 bytes")
    if not _LABEL.fullmatch(name):
        faults.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character (e.g. 'my-name',  or "
            f"'123-abc', regex used for validation is '{_LABEL.pattern}')"
        )
    return faults


def service_name_faults(name: str) -> list[str]:
    """Validate a DNS-1035 label, the name of a Service: at most 63, no dots, a letter first."""
    faults = []
    if len(name) > 63:
        faults.append("must be no more than 63 bytes")
    if not _LABEL_1035.fullmatch(name):
        faults.append(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
            "with an alphabetic character, and end with an alphanumeric character (e.g. "
            f"'my-name',  or 'abc-123', regex used for validation is '{_LABEL_1035.pattern}')"
        )
    return faults


def path_segment_faults(name: str) -> list[str]:
    """Validate a step of a request's path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in name]


def _must_match(pattern: re.Pattern[str], *examples: str) -> str:
    shown = "',  or '".join(examples)
    return (
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        f"alphanumeric character (e.g. '{shown}', regex used for validation is '{pattern.pattern}')"
    )
