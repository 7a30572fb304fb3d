"""Rules that map metrics to PromQL queries: those of a file, and default ones.  Pure.

By default a metric is the sum of the series of its name for each object, by the label of the
object's kind: ``pod`` for pods.  ``X_per_second`` is the rate of the counter ``X_total``.  Series
of corral and KubeVirt about VMIs have the VMI's name in the label ``name``: it finds the pod.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from corral.api import yaml
from corral.api.errors import ApiError
from corral.api.kind import Kind
from corral.api.time import parse_duration
from corral.server.metrics.custom.promql import is_label, is_metric

MATCHERS: Final = "$matchers"
"""The placeholder of matchers in the query of a rule."""
PODS: Final = "pods"
NAMESPACES: Final = "namespaces"
RATE_SECONDS: Final = 120
"""The window of default rates: eight scrapes at 15 s."""

_VMI_PREFIXES = ("kubevirt_vmi_", "kubevirt_vm_")
_RATE = "_per_second"
_NAME = re.compile(r"[A-Za-z0-9_:.-]{1,256}", re.ASCII)
_LONGEST_WINDOW = 86400


class RulesError(Exception):
    """An invalid rules file; the message names the file, the field, and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The query of a metric.

    query: PromQL, with ``$matchers`` in place of matchers.
    label: the label with the object's name; empty if the query is about a single object.
    namespace_label: the label with the namespace; empty if there is none.
    is_vmi_label: whether ``label`` has the name of the VMI of a requested pod.
    window_seconds: the window of a rate.
    """

    query: str
    label: str = ""
    namespace_label: str = "namespace"
    is_vmi_label: bool = False
    window_seconds: int | None = None

    def with_matchers(self, matchers: Sequence[str]) -> str:
        return self.query.replace(MATCHERS, ",".join(matchers))


class _Custom(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A rule of the file for objects.  ``resource``: their plural, with the group after a dot."""

    metric: str
    query: str
    resource: str = PODS
    label: str = ""
    namespace_label: str = "namespace"
    instances: bool = False
    window: str = ""


class _External(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A rule of the file for external metrics.

    Unless ``namespaced`` is false, an autoscaler sees only series of its own namespace.
    """

    metric: str
    query: str
    namespaced: bool = True
    namespace_label: str = "namespace"
    window: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A file of rules.  ``defaults``: whether metrics without a rule have the default one."""

    custom: list[_Custom] = []
    external: list[_External] = []
    defaults: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of custom metrics, by resource and metric, and of external ones, by metric."""

    custom: Mapping[tuple[str, str], Rule] = field(default_factory=dict)
    external: Mapping[str, Rule] = field(default_factory=dict)
    defaults: bool = True

    def custom_rule(self, kind: Kind, metric: str) -> Rule | None:
        """Return the rule for a metric of objects of a kind, or None."""
        rule = self.custom.get((kind.resource, metric))
        if rule is not None or not self.defaults or not is_metric(metric):
            return rule
        is_of_vmis = metric.startswith(_VMI_PREFIXES)
        label = "name" if is_of_vmis else kind.singular
        if kind.resource == NAMESPACES:
            label = ""
        by = f" by ({label}) " if label else ""
        return Rule(
            query=f"sum{by}({_series(metric)})",
            label=label,
            is_vmi_label=is_of_vmis and kind.resource == PODS,
            window_seconds=_window(metric),
        )

    def external_rule(self, metric: str) -> Rule | None:
        """Return the rule for an external metric, or None."""
        rule = self.external.get(metric)
        if rule is not None or not self.defaults or not is_metric(metric):
            return rule
        return Rule(query=_series(metric), window_seconds=_window(metric))


def _series(metric: str) -> str:
    if metric.endswith(_RATE):
        return f"rate({metric.removesuffix(_RATE)}_total{{{MATCHERS}}}[{RATE_SECONDS}s])"
    return f"{metric}{{{MATCHERS}}}"


def _window(metric: str) -> int | None:
    return RATE_SECONDS if metric.endswith(_RATE) else None


def load(path: Path) -> Rules:
    """Read the rules of a file.  Raises RulesError."""
    try:
        file = msgspec.convert(yaml.load(path.read_bytes()), _File)
        return Rules(
            custom=dict(_parse_all(file.custom, _custom_rule, "custom")),
            external=dict(_parse_all(file.external, _external_rule, "external")),
            defaults=file.defaults,
        )
    except OSError as error:
        raise RulesError(f"{path}: {error.strerror or error}") from error
    except (ApiError, msgspec.ValidationError, ValueError) as error:
        raise RulesError(f"{path}: {error}") from error


_Entry = TypeVar("_Entry", _Custom, _External)
_Name = TypeVar("_Name")


def _parse_all(
    entries: Sequence[_Entry],
    read: Callable[[_Entry, str], tuple[_Name, Rule]],
    list_name: str,
) -> Iterator[tuple[_Name, Rule]]:
    """Yield the rules of a list with their names.  Raises ValueError that names the field."""
    names: set[_Name] = set()
    for number, one in enumerate(entries):
        place = f"{list_name}[{number}]"
        name, rule = read(one, place)
        if name in names:
            raise ValueError(f'{place}.metric: "{one.metric}" has a rule already')
        names.add(name)
        yield name, rule


def _custom_rule(entry: _Custom, place: str) -> tuple[tuple[str, str], Rule]:
    _check(entry, place)
    if MATCHERS not in entry.query:
        raise ValueError(
            f"{place}.query: {MATCHERS} must stand where the objects are chosen, as in "
            f"sum by (pod) (X{{{MATCHERS}}})"
        )
    label = entry.label or ("" if entry.resource == NAMESPACES else _singular(entry.resource))
    if label and not is_label(label):
        raise ValueError(f'{place}.label: "{label}" cannot be a label in Prometheus')
    if entry.instances and entry.resource != PODS:
        raise ValueError(f"{place}.instances: is for pods only")
    return (entry.resource, entry.metric), Rule(
        query=entry.query,
        label=label,
        namespace_label=entry.namespace_label,
        is_vmi_label=entry.instances,
        window_seconds=_seconds(entry.window, place),
    )


def _external_rule(entry: _External, place: str) -> tuple[str, Rule]:
    _check(entry, place)
    if entry.namespaced and MATCHERS not in entry.query:
        raise ValueError(
            f"{place}.query: {MATCHERS} must stand where the series are chosen, as in "
            f"X{{{MATCHERS}}}, unless namespaced is false"
        )
    return entry.metric, Rule(
        query=entry.query,
        namespace_label=entry.namespace_label if entry.namespaced else "",
        window_seconds=_seconds(entry.window, place),
    )


def _check(entry: _Custom | _External, place: str) -> None:
    if not _NAME.fullmatch(entry.metric):
        raise ValueError(f'{place}.metric: "{entry.metric}" cannot be part of a path')
    if not entry.query.strip():
        raise ValueError(f"{place}.query: must not be empty")
    if entry.namespace_label and not is_label(entry.namespace_label):
        label = entry.namespace_label
        raise ValueError(f'{place}.namespaceLabel: "{label}" cannot be a label in Prometheus')


def _singular(resource: str) -> str:
    return resource.partition(".")[0].removesuffix("s")


def _seconds(window: str, place: str) -> int | None:
    if not window:
        return None
    try:
        seconds = parse_duration(window)
    except ValueError as error:
        raise ValueError(f"{place}.window: {error}") from None
    if not 1 <= seconds <= _LONGEST_WINDOW:
        raise ValueError(f"{place}.window: must be from 1s to 24h")
    return int(seconds)
