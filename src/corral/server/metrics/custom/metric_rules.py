"""Which query answers which metric: those of a file, and those that need no file.  Pure.

Without a rule of its own a metric is the series of its name, added up over each object, which a
label of the series names: ``pod`` for pods.  ``X_per_second`` is the rate of the counter
``X_total``.  The figures that corral and KubeVirt tell of machines name the instance in ``name``;
its pod is found by that.
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
"""What the conditions on series are put in place of, in the query of a rule."""
PODS: Final = "pods"
NAMESPACES: Final = "namespaces"
RATE_SECONDS: Final = 120
"""Over what the rate of a counter is taken that has no rule: eight scrapes in 15 s."""

_MACHINES = ("kubevirt_vmi_", "kubevirt_vm_")
_RATE = "_per_second"
_NAME = re.compile(r"[A-Za-z0-9_:.-]{1,256}", re.ASCII)
_LONGEST_WINDOW = 86400


class RulesError(Exception):
    """A file of rules cannot be used; the message says which, where, and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a metric is asked for.

    query: PromQL, with ``$matchers`` where the conditions on series belong.
    label: the one by which the answer tells the object; empty where it is about one object alone.
    namespace_label: the one that tells the namespace; empty where none does.
    of_instances: whether ``label`` names the instance, of a pod that is asked for.
    window_seconds: over what a value is taken, where it is a rate.
    """

    query: str
    label: str = ""
    namespace_label: str = "namespace"
    of_instances: bool = False
    window_seconds: int | None = None

    def filled(self, matchers: Sequence[str]) -> str:
        return self.query.replace(MATCHERS, ",".join(matchers))


class _Custom(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A rule of the file for objects.  ``resource``: their plural, and group after a dot."""

    metric: str
    query: str
    resource: str = PODS
    label: str = ""
    namespace_label: str = "namespace"
    instances: bool = False
    window: str = ""


class _External(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A rule of the file for what is no object.

    Unless ``namespaced`` is false, an autoscaler sees only series of its own namespace.
    """

    metric: str
    query: str
    namespaced: bool = True
    namespace_label: str = "namespace"
    window: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """``defaults``: whether metrics without a rule are the series of their names."""

    custom: list[_Custom] = []
    external: list[_External] = []
    defaults: bool = True


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for objects, by resource and metric, and for all else, by metric."""

    custom: Mapping[tuple[str, str], Rule] = field(default_factory=dict)
    external: Mapping[str, Rule] = field(default_factory=dict)
    defaults: bool = True

    def of_objects(self, kind: Kind, metric: str) -> Rule | None:
        """The rule for a metric of objects of a kind."""
        rule = self.custom.get((kind.resource, metric))
        if rule is not None or not self.defaults or not is_metric(metric):
            return rule
        of_machines = metric.startswith(_MACHINES)
        label = "name" if of_machines else kind.singular
        if kind.resource == NAMESPACES:
            label = ""
        by = f" by ({label}) " if label else ""
        return Rule(
            query=f"sum{by}({_series(metric)})",
            label=label,
            of_instances=of_machines and kind.resource == PODS,
            window_seconds=_window(metric),
        )

    def of_nothing(self, metric: str) -> Rule | None:
        """The rule for a metric of what is no object."""
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
    """The rules of a file.  Raises RulesError."""
    try:
        file = msgspec.convert(yaml.load(path.read_bytes()), _File)
        return Rules(
            custom=dict(_each(file.custom, _of_objects, "custom")),
            external=dict(_each(file.external, _of_nothing, "external")),
            defaults=file.defaults,
        )
    except OSError as error:
        raise RulesError(f"{path}: {error.strerror or error}") from error
    except (ApiError, msgspec.ValidationError, ValueError) as error:
        raise RulesError(f"{path}: {error}") from error


_Written = TypeVar("_Written", _Custom, _External)
_Name = TypeVar("_Name")


def _each(
    written: Sequence[_Written],
    read: Callable[[_Written, str], tuple[_Name, Rule]],
    where: str,
) -> Iterator[tuple[_Name, Rule]]:
    """The rules of a list, by what they are for.  Raises ValueError that names the place."""
    known: set[_Name] = set()
    for number, one in enumerate(written):
        place = f"{where}[{number}]"
        name, rule = read(one, place)
        if name in known:
            raise ValueError(f'{place}.metric: "{one.metric}" has a rule already')
        known.add(name)
        yield name, rule


def _of_objects(written: _Custom, place: str) -> tuple[tuple[str, str], Rule]:
    _check(written, place)
    if MATCHERS not in written.query:
        raise ValueError(
            f"{place}.query: {MATCHERS} must stand where the objects are chosen, as in "
            f"sum by (pod) (X{{{MATCHERS}}})"
        )
    label = written.label or ("" if written.resource == NAMESPACES else _singular(written.resource))
    if label and not is_label(label):
        raise ValueError(f'{place}.label: "{label}" cannot be a label in Prometheus')
    if written.instances and written.resource != PODS:
        raise ValueError(f"{place}.instances: is for pods only")
    return (written.resource, written.metric), Rule(
        query=written.query,
        label=label,
        namespace_label=written.namespace_label,
        of_instances=written.instances,
        window_seconds=_seconds(written.window, place),
    )


def _of_nothing(written: _External, place: str) -> tuple[str, Rule]:
    _check(written, place)
    if written.namespaced and MATCHERS not in written.query:
        raise ValueError(
            f"{place}.query: {MATCHERS} must stand where the series are chosen, as in "
            f"X{{{MATCHERS}}}, unless namespaced is false"
        )
    return written.metric, Rule(
        query=written.query,
        namespace_label=written.namespace_label if written.namespaced else "",
        window_seconds=_seconds(written.window, place),
    )


def _check(written: _Custom | _External, place: str) -> None:
    if not _NAME.fullmatch(written.metric):
        raise ValueError(f'{place}.metric: "{written.metric}" cannot be part of a path')
    if not written.query.strip():
        raise ValueError(f"{place}.query: must not be empty")
    if written.namespace_label and not is_label(written.namespace_label):
        wrong = written.namespace_label
        raise ValueError(f'{place}.namespaceLabel: "{wrong}" cannot be a label in Prometheus')


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
