"""Of which requests how much is told (Kubernetes' audit policies).  Pure.

The first rule that matches a request decides; one that no rule matches is not told of.
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
    """How much is told of a request, each with what the ones before it tell."""

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
    """A policy that cannot be used; the message says which file, which field, and why."""


class Resources(Struct, kw_only=True, forbid_unknown_fields=True):
    """Resources of a group; none named means all of them."""

    group: str = ""
    resources: list[str] = []
    resource_names: list[str] = []

    def match(self, named: Route) -> bool:
        if self.group != named.group:
            return False
        if self.resource_names and named.name not in self.resource_names:
            return False
        return not self.resources or any(_names(each, named) for each in self.resources)


class Rule(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is told of the requests that match everything that is listed; empty lists match all."""

    level: str
    users: list[str] = []
    user_groups: list[str] = []
    verbs: list[str] = []
    resources: list[Resources] = []
    namespaces: list[str] = []
    non_resource_urls: list[str] = msgspec.field(name="nonResourceURLs", default_factory=list)
    omit_stages: list[Stage] = []
    omit_managed_fields: bool | None = None

    def matches(self, user: User | None, verb: str, named: Route | None, path: str) -> bool:
        return (
            (not self.users or (user is not None and user.name in self.users))
            and (not self.user_groups or _any_in(self.user_groups, user.groups if user else ()))
            and (not self.verbs or verb in self.verbs)
            and self._matches_target(named, path)
        )

    def _matches_target(self, named: Route | None, path: str) -> bool:
        if self.namespaces or self.resources:
            return (
                named is not None
                and (not self.namespaces or named.namespace in self.namespaces)
                and (not self.resources or any(each.match(named) for each in self.resources))
            )
        if self.non_resource_urls:
            return named is None and any(map(partial(_covers, path), self.non_resource_urls))
        return True


class Policy(Struct, kw_only=True, forbid_unknown_fields=True):
    """The rules, and stages and fields that none of them is to tell."""

    api_version: Literal["audit.k8s.io/v1"]
    kind: Literal["Policy"]
    metadata: dict[str, Any] = {}
    rules: list[Rule]
    omit_stages: list[Stage] = []
    omit_managed_fields: bool = False

    @classmethod
    def read(cls, path: Path) -> "Policy":
        """The policy of a file.  Raises PolicyError, and OSError where there is none."""
        try:
            policy = msgspec.convert(yaml.load(path.read_bytes()), cls)
        except ApiError as error:
            raise PolicyError(f"{path} is no audit policy: {error}") from error
        except msgspec.ValidationError as error:
            raise PolicyError(f"{path} is no audit policy: {_said(str(error))}") from error
        faults = list(policy.faults())
        if faults:
            raise PolicyError(f"{path} is no audit policy: {'; '.join(faults)}")
        return policy

    def faults(self) -> Iterable[str]:
        """What is wrong beside the types of fields, in the words of the real server."""
        if not self.rules:
            yield "rules: there are none, so nothing would be told"
        for index, rule in enumerate(self.rules):
            for fault in _faults(rule):
                yield f"rules[{index}].{fault}"

    def find(self, user: User | None, verb: str, named: Route | None, path: str) -> Rule | None:
        """The rule for a request; None where nothing is to be told of it."""
        for rule in self.rules:
            if rule.matches(user, verb, named, path):
                return rule if LEVELS[rule.level] else None
        return None

    def omits(self, rule: Rule, stage: Stage) -> bool:
        return stage in self.omit_stages or stage in rule.omit_stages

    def omits_managed_fields(self, rule: Rule) -> bool:
        told = rule.omit_managed_fields
        return self.omit_managed_fields if told is None else told


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


def _said(fault: str) -> str:
    """A fault of decoding as faults are told: which field it is, then what is wrong."""
    what, _, path = fault.replace("`", "").partition(" - at $")
    field = path.lstrip(".")
    if found := re.fullmatch("Invalid enum value '(.*)'", what, re.DOTALL):
        name = field.rpartition(".")[2].partition("[")[0]
        what = f'Unsupported value: "{found[1]}": supported values: {_SUPPORTED.get(name, "")}'
    return f"{field}: {what}" if field else what


def _names(resource: str, named: Route) -> bool:
    """Whether a policy's word for resources means one: a subresource is named, or ``*``."""
    target = f"{named.plural}/{named.subresource}" if named.subresource else named.plural
    return (
        resource in ("*", target)
        or bool(named.subresource and resource == f"*/{named.subresource}")
        or resource == f"{named.plural}/*"
    )


def _covers(path: str, url: str) -> bool:
    return path.startswith(url[:-1]) if url.endswith("*") else path == url


def _any_in(wanted: Iterable[str], found: Iterable[str]) -> bool:
    return not set(wanted).isdisjoint(found)


DEFAULT: Final = Policy(
    api_version=API_VERSION,
    kind="Policy",
    omit_stages=["RequestReceived"],
    rules=[
        Rule(
            level="None",
            non_resource_urls=["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*"],
        ),
        Rule(level="Metadata"),
    ],
)
"""Everything but questions that everybody may ask, without contents: those may be secrets."""
