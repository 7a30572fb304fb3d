"""Audit policies: which requests are recorded at which level (audit.k8s.io/v1).  Pure.

The first rule that matches a request decides; a request that no rule matches is not recorded.
"""

import re
from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from corral.api import yaml
from corral.api.errors import ApiError
from corral.api.object import Struct
from corral.api.request import User
from corral.server.request.route import Route

API_VERSION: Final = "audit.k8s.io/v1"

Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]


class Level(IntEnum):
    """Levels of audit events; each includes the lower ones."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


LEVELS: Final = {
    "None": Level.NONE,
    "Metadata": Level.METADATA,
    "Request": Level.REQUEST,
    "RequestResponse": Level.REQUEST_RESPONSE,
}
NAMES: Final = {level: name for name, level in LEVELS.items()}


class PolicyError(Exception):
    """An invalid policy; the message names the file, the field, and what is wrong."""


class Resources(Struct, kw_only=True, forbid_unknown_fields=True):
    """Resources of a group; an empty list matches all."""

    group: str = ""
    resources: list[str] = []
    resource_names: list[str] = []

    def match(self, route: Route) -> bool:
        if self.group != route.group:
            return False
        if self.resource_names and route.name not in self.resource_names:
            return False
        return not self.resources or any(_names(each, route) for each in self.resources)


class Rule(Struct, kw_only=True, forbid_unknown_fields=True):
    """The level of requests that match all lists; empty lists match all requests."""

    level: str
    users: list[str] = []
    user_groups: list[str] = []
    verbs: list[str] = []
    resources: list[Resources] = []
    namespaces: list[str] = []
    non_resource_urls: list[str] = msgspec.field(name="nonResourceURLs", default_factory=list)
    omit_stages: list[Stage] = []
    omit_managed_fields: bool | None = None

    def matches(self, user: User | None, verb: str, route: Route | None, path: str) -> bool:
        return (
            (not self.users or (user is not None and user.name in self.users))
            and (not self.user_groups or _any_in(self.user_groups, user.groups if user else ()))
            and (not self.verbs or verb in self.verbs)
            and self._matches_target(route, path)
        )

    def _matches_target(self, route: Route | None, path: str) -> bool:
        if self.namespaces or self.resources:
            return (
                route is not None
                and (not self.namespaces or route.namespace in self.namespaces)
                and (not self.resources or any(each.match(route) for each in self.resources))
            )
        if self.non_resource_urls:
            return route is None and any(map(partial(_covers, path), self.non_resource_urls))
        return True


class Policy(Struct, kw_only=True, forbid_unknown_fields=True):
    """The rules of an audit policy, and stages and fields that all of them omit."""

    api_version: Literal["audit.k8s.io/v1"]
    kind: Literal["Policy"]
    metadata: dict[str, Any] = {}
    rules: list[Rule]
    omit_stages: list[Stage] = []
    omit_managed_fields: bool = False

    @classmethod
    def read(cls, path: Path) -> "Policy":
        """Read the policy of a file.  Raises PolicyError and OSError."""
        try:
            policy = msgspec.convert(yaml.load(path.read_bytes()), cls)
        except ApiError as error:
            raise PolicyError(f"{path} is no audit policy: {error}") from error
        except msgspec.ValidationError as error:
            raise PolicyError(f"{path} is no audit policy: {_describe(str(error))}") from error
        faults = list(policy.faults())
        if faults:
            raise PolicyError(f"{path} is no audit policy: {'; '.join(faults)}")
        return policy

    def faults(self) -> Iterable[str]:
        """Yield the faults beyond types of fields, with kube-apiserver's messages."""
        if not self.rules:
            yield "rules: Required value: without rules nothing is recorded"
        for index, rule in enumerate(self.rules):
            for fault in _faults(rule):
                yield f"rules[{index}].{fault}"

    def find(self, user: User | None, verb: str, route: Route | None, path: str) -> Rule | None:
        """Return the rule for a request; None if it is not recorded."""
        for rule in self.rules:
            if rule.matches(user, verb, route, path):
                return rule if LEVELS[rule.level] else None
        return None

    def omits(self, rule: Rule, stage: Stage) -> bool:
        return stage in self.omit_stages or stage in rule.omit_stages

    def omits_managed_fields(self, rule: Rule) -> bool:
        omits = rule.omit_managed_fields
        return self.omit_managed_fields if omits is None else omits


def _faults(rule: Rule) -> Iterable[str]:
    if rule.level not in LEVELS:
        yield f'level: Unsupported value: "{rule.level}": supported values: {", ".join(LEVELS)}'
    if rule.non_resource_urls and (rule.resources or rule.namespaces):
        yield "nonResourceURLs: rules cannot apply to both regular resources and non-resource URLs"
    for url in rule.non_resource_urls:
        if not url.startswith(("/", "*")):
            yield "nonResourceURLs: non-resource URL rules must begin with a '/' character"
        if "*" in url[:-1]:
            yield (
                "nonResourceURLs: non-resource URL wildcards '*' must be the final character of "
                "the rule"
            )
    for resources in rule.resources:
        if resources.resource_names and not resources.resources:
            yield "resources.resourceNames: using resourceNames requires at least one resource"


_SUPPORTED: Final = {
    "apiVersion": API_VERSION,
    "kind": "Policy",
    "omitStages": "RequestReceived, ResponseStarted, ResponseComplete, Panic",
}


def _describe(fault: str) -> str:
    """Return a decoding error with the field first, as in other faults."""
    message, _, path = fault.replace("`", "").partition(" - at $")
    field = path.lstrip(".")
    if match := re.fullmatch("Invalid enum value '(.*)'", message, re.DOTALL):
        name = field.rpartition(".")[2].partition("[")[0]
        message = f'Unsupported value: "{match[1]}": supported values: {_SUPPORTED.get(name, "")}'
    return f"{field}: {message}" if field else message


def _names(resource: str, route: Route) -> bool:
    """Return whether ``pods``, ``pods/log``, ``*/log`` or ``pods/*`` in a policy matches."""
    target = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
    return (
        resource in ("*", target)
        or bool(route.subresource and resource == f"*/{route.subresource}")
        or resource == f"{route.plural}/*"
    )


def _covers(path: str, url: str) -> bool:
    return path.startswith(url[:-1]) if url.endswith("*") else path == url


def _any_in(names: Iterable[str], others: Iterable[str]) -> bool:
    return not set(names).isdisjoint(others)


DEFAULT: Final = Policy(
    api_version=API_VERSION,
    kind="Policy",
    omit_stages=["RequestReceived"],
    rules=[
        Rule(
            level="None",
            non_resource_urls=["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"],
        ),
        Rule(level="None", verbs=["get", "head"], non_resource_urls=["/dashboard*"]),
        Rule(level="Metadata"),
    ],
)
"""Metadata of all requests except public ones; no bodies, which may have secrets."""
