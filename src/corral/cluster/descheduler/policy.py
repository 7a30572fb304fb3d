"""The descheduler's policy: descheduler/v1alpha2 as YAML, parsed and checked.  Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from corral.api.errors import ApiError
from corral.api.selectors import LabelSelector, parse_labels
from corral.api.yaml import load
from corral.cluster.descheduler.arguments import (
    Arguments,
    DefaultEvictorArgs,
    Part,
    node_selector_faults,
)
from corral.cluster.descheduler.strategies import STRATEGIES, Strategy

VERSION: Final = "descheduler/v1alpha2"
KIND: Final = "DeschedulerPolicy"
DEFAULT_EVICTOR: Final = "DefaultEvictor"
WITHOUT_EFFECT: Final[Mapping[str, tuple[str, str]]] = {
    "RemovePodsViolatingInterPodAntiAffinity": (
        "deschedule",
        "the scheduler of corral knows no affinity between pods",
    ),
    "RemovePodsHavingTooManyRestarts": ("deschedule", "the pod of a VMI is never restarted"),
    "RemoveFailedPods": ("deschedule", "the owner of a VMI removes and replaces it when it fails"),
}
"""Plugins of the descheduler that have no effect here: their extension point, and why."""

P = TypeVar("P", bound=Part)


class InvalidPolicy(Exception):
    """A policy that cannot be carried out; the message names the fields."""


class _PluginSet(Part, frozen=True):
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


class _Plugins(Part, kw_only=True, frozen=True):
    presort: _PluginSet = _PluginSet()
    sort: _PluginSet = _PluginSet()
    deschedule: _PluginSet = _PluginSet()
    balance: _PluginSet = _PluginSet()
    filter: _PluginSet = _PluginSet()
    preevictionfilter: _PluginSet = _PluginSet()
    pre_eviction_filter: _PluginSet = _PluginSet()


class _PluginConfig(Part, frozen=True):
    name: str
    args: Mapping[str, Any] = {}


class _Profile(Part, kw_only=True, frozen=True):
    name: str = ""
    plugin_config: tuple[_PluginConfig, ...] = ()
    plugins: _Plugins = _Plugins()


class _Policy(Part, kw_only=True, frozen=True):
    api_version: str = ""
    kind: str = ""
    node_selector: str = ""
    profiles: tuple[_Profile, ...] = ()
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    eviction_failure_event_notification: bool = False
    grace_period_seconds: int | None = None
    metrics_collector: Mapping[str, Any] = {}
    metrics_providers: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that a profile enables, with its arguments."""

    name: str
    arguments: Arguments
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Profile:
    """Plugins by extension point, and which pods they may evict."""

    name: str
    evictor: DefaultEvictorArgs
    deschedule: tuple[Plugin, ...]
    balance: tuple[Plugin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A valid policy.

    per_node, per_namespace, total: the most evictions in a cycle; None: no limit.
    ignored: what has no effect, for people.
    """

    profiles: tuple[Profile, ...]
    node_selector: LabelSelector
    per_node: int | None
    per_namespace: int | None
    total: int | None
    reports_failures: bool
    grace_seconds: int | None
    ignored: tuple[str, ...]


def parse(text: str) -> Policy:
    """Return the policy in a YAML text.  Raises InvalidPolicy."""
    try:
        document = _without_nulls(load(text))
    except ApiError as error:
        raise InvalidPolicy(str(error)) from None
    if (document.get("apiVersion"), document.get("kind")) != (VERSION, KIND):
        raise InvalidPolicy(f"apiVersion and kind: must be {VERSION} and {KIND}")
    policy = _convert(document, _Policy, "")
    faults = [*_faults(policy)]
    profiles = []
    for number, profile in enumerate(policy.profiles):
        reader = _ProfileReader(profile, f"profiles[{number}]")
        profiles.append(reader.read())
        faults += reader.faults
    if faults:
        raise InvalidPolicy("; ".join(faults))
    return Policy(
        profiles=tuple(profiles),
        node_selector=parse_labels(policy.node_selector),
        per_node=policy.max_no_of_pods_to_evict_per_node,
        per_namespace=policy.max_no_of_pods_to_evict_per_namespace,
        total=policy.max_no_of_pods_to_evict_total,
        reports_failures=policy.eviction_failure_event_notification,
        grace_seconds=policy.grace_period_seconds,
        ignored=tuple(_ignored(policy)),
    )


def _faults(policy: _Policy) -> Iterator[str]:
    if not policy.profiles:
        yield "profiles: must have a profile"
    yield from node_selector_faults(policy.node_selector)
    for field, number in (
        ("maxNoOfPodsToEvictPerNode", policy.max_no_of_pods_to_evict_per_node),
        ("maxNoOfPodsToEvictPerNamespace", policy.max_no_of_pods_to_evict_per_namespace),
        ("maxNoOfPodsToEvictTotal", policy.max_no_of_pods_to_evict_total),
        ("gracePeriodSeconds", policy.grace_period_seconds),
    ):
        if number is not None and number < 0:
            yield f"{field}: must not be negative"


def _ignored(policy: _Policy) -> Iterator[str]:
    """Yield what of a policy has no effect."""
    if policy.metrics_collector or policy.metrics_providers:
        yield "metricsProviders: corral compares requests, not measured usage"
    for number, profile in enumerate(policy.profiles):
        for name in profile.plugins.deschedule.enabled:
            if name in WITHOUT_EFFECT:
                path = f"profiles[{number}].plugins.deschedule.enabled"
                yield f"{path}: {name}: {WITHOUT_EFFECT[name][1]}"


class _ProfileReader:
    """Reads one profile, and collects what is wrong with it."""

    def __init__(self, profile: _Profile, path: str) -> None:
        self.faults: list[str] = []
        self._profile = profile
        self._path = path
        self._arguments: dict[str, Arguments] = {DEFAULT_EVICTOR: DefaultEvictorArgs()}

    def read(self) -> Profile:
        """Return the profile; it is of no use if there are faults."""
        for number, config in enumerate(self._profile.plugin_config):
            self._read_arguments(config, f"{self._path}.pluginConfig[{number}]")
        plugins = self._profile.plugins
        for point in ("presort", "sort"):
            if getattr(plugins, point).enabled:
                self.faults.append(f"{self._path}.plugins.{point}: the descheduler has none")
        for point in ("filter", "preevictionfilter", "pre_eviction_filter"):
            if set(getattr(plugins, point).enabled) - {DEFAULT_EVICTOR}:
                text = f"{self._path}.plugins.{point.replace('_', '')}: "
                self.faults.append(f"{text}only {DEFAULT_EVICTOR} is known")
        evictor = self._arguments[DEFAULT_EVICTOR]
        assert isinstance(evictor, DefaultEvictorArgs)
        return Profile(
            name=self._profile.name,
            evictor=evictor,
            deschedule=tuple(self._plugins("deschedule", plugins.deschedule)),
            balance=tuple(self._plugins("balance", plugins.balance)),
        )

    def _read_arguments(self, config: _PluginConfig, path: str) -> None:
        if config.name in WITHOUT_EFFECT:
            self._arguments[config.name] = Arguments()
            return
        strategy = STRATEGIES.get(config.name)
        if strategy is None and config.name != DEFAULT_EVICTOR:
            self.faults.append(f'{path}.name: "{config.name[:50]}" is no plugin of the descheduler')
            return
        view = strategy.arguments if strategy is not None else DefaultEvictorArgs
        try:
            arguments = _convert(config.args, view, f"{path}.args")
        except InvalidPolicy as error:
            self.faults.append(str(error))
            self._arguments.setdefault(config.name, Arguments())
            return
        self.faults += [f"{path}.args.{fault}" for fault in arguments.faults()]
        self._arguments[config.name] = arguments

    def _plugins(self, point: str, enabled: _PluginSet) -> Iterator[Plugin]:
        path = f"{self._path}.plugins.{point}.enabled"
        for name in enabled.enabled:
            strategy = STRATEGIES.get(name)
            own_point = (
                strategy.point if strategy is not None else WITHOUT_EFFECT.get(name, ("",))[0]
            )
            if own_point != point:
                self.faults.append(f'{path}: "{name[:50]}" is no plugin of this extension point')
            elif name not in self._arguments:
                self.faults.append(
                    f'{path}: {name} has no entry in pluginConfig: add "name: {name}"'
                )
            elif strategy is not None:
                yield Plugin(name, self._arguments[name], strategy)


def _convert(document: Mapping[str, Any], view: type[P], path: str) -> P:
    """Read a part of the policy.  Raises InvalidPolicy that names the field."""
    try:
        return msgspec.convert(document, view)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        field = (path + where.rstrip("`")).strip(".")
        raise InvalidPolicy(f"{field}: {what}" if field else what) from None


def _without_nulls(value: Any) -> Any:
    """Return a value without its null fields: to Go, these are not set."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value
