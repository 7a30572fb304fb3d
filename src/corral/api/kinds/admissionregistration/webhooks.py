"""MutatingWebhookConfiguration and ValidatingWebhookConfiguration."""

import base64
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from lightkube.models.admissionregistration_v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)

from corral.api.errors import Cause, limited
from corral.api.kind import Verdict
from corral.api.kinds.admissionregistration.match_rules import (
    FAIL,
    FAILURE_POLICIES,
    GROUP,
    VARIABLES,
    condition_causes,
    default_selection,
    rule_causes,
    selection_causes,
)
from corral.api.kinds.causes import duplicate, each_invalid, invalid, required, unsupported
from corral.api.kinds.columns import age, length
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.names import label_faults, subdomain_faults
from corral.api.object import Document

REVIEW_VERSIONS: Final = ("v1", "v1beta1")
"""Supported versions of AdmissionReview, the preferred first."""
SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
NEVER: Final = "Never"
IF_NEEDED: Final = "IfNeeded"
LONGEST_TIMEOUT: Final = 30
_DEFAULT_TIMEOUT = 10
_FORM = "; desired format: https://host[/path]"
_LARGEST_PORT = 65535
_FEWEST_LABELS = 3


# ------------------------------------------------------------------- defaults


def _default(document: Document) -> None:
    for webhook in document.get("webhooks") or ():
        webhook.setdefault("failurePolicy", FAIL)
        webhook.setdefault("timeoutSeconds", _DEFAULT_TIMEOUT)
        default_selection(webhook, "rules")
        service = (webhook.get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


def _default_mutating(document: Document) -> None:
    _default(document)
    for webhook in document.get("webhooks") or ():
        webhook.setdefault("reinvocationPolicy", NEVER)


# ----------------------------------------------------------------- validation


def _validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    return Verdict(limited(_check_webhooks(document)))


def _check_webhooks(document: Document) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, webhook in enumerate(document.get("webhooks") or ()):
        path, name = f"webhooks[{index}]", webhook.get("name") or ""
        yield from _check_webhook(path, webhook)
        if name and name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)


def _check_webhook(path: str, webhook: Document) -> Iterator[Cause]:
    yield from _check_name(f"{path}.name", webhook.get("name") or "")
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from rule_causes(f"{path}.rules[{index}]", rule)
    if webhook["failurePolicy"] not in FAILURE_POLICIES:
        yield unsupported(f"{path}.failurePolicy", webhook["failurePolicy"], FAILURE_POLICIES)
    yield from _check_side_effects(f"{path}.sideEffects", webhook.get("sideEffects"))
    seconds = webhook["timeoutSeconds"]
    if not 1 <= seconds <= LONGEST_TIMEOUT:
        why = f"the timeout value must be between 1 and {LONGEST_TIMEOUT} seconds"
        yield invalid(f"{path}.timeoutSeconds", seconds, why)
    yield from selection_causes(path, webhook)
    reinvocation = webhook.get("reinvocationPolicy")
    if reinvocation not in (None, NEVER, IF_NEEDED):
        yield unsupported(f"{path}.reinvocationPolicy", reinvocation, (NEVER, IF_NEEDED))
    yield from _check_client_config(f"{path}.clientConfig", webhook.get("clientConfig") or {})
    conditions = webhook.get("matchConditions") or ()
    yield from condition_causes(f"{path}.matchConditions", conditions, VARIABLES)
    versions = webhook.get("admissionReviewVersions") or ()
    yield from _check_review_versions(f"{path}.admissionReviewVersions", versions)


def _check_name(path: str, name: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
        return
    yield from each_invalid(path, name, subdomain_faults(name))
    if len(name.split(".")) < _FEWEST_LABELS:
        why = "should be a domain with at least three segments separated by dots"
        yield invalid(path, name, why)


def _check_side_effects(path: str, effects: str | None) -> Iterator[Cause]:
    if not effects:
        yield required(path, f"must specify one of {', '.join(SIDE_EFFECTS)}")
    elif effects not in SIDE_EFFECTS:
        yield unsupported(path, effects, SIDE_EFFECTS)


def _check_review_versions(path: str, versions: Sequence[str]) -> Iterator[Cause]:
    supported = ", ".join(REVIEW_VERSIONS)
    if not versions:
        yield required(path, f"must specify one of {supported}")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        seen.add(version)
        yield from each_invalid(f"{path}[{index}]", version, label_faults(version))
    if not seen.intersection(REVIEW_VERSIONS):
        yield invalid(path, list(versions), f"must include at least one of {supported}")


def _check_client_config(path: str, client: Document) -> Iterator[Cause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif service is not None:
        yield from _check_service(f"{path}.service", service)
    else:
        assert url is not None
        yield from _check_url(f"{path}.url", url)
    try:
        base64.b64decode(client.get("caBundle") or "", validate=True)
    except ValueError:
        yield invalid(f"{path}.caBundle", client["caBundle"], "must be PEM data in base64")


def _check_url(path: str, url: str) -> Iterator[Cause]:
    try:
        parts = urlsplit(url)
        _port = parts.port
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not parts.hostname:
        yield invalid(path, parts.netloc, f"host must be specified{_FORM}")
    if parts.username is not None:
        yield invalid(path, parts.username, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _check_service(path: str, service: Document) -> Iterator[Cause]:
    for field in ("name", "namespace"):
        if not service.get(field):
            yield required(f"{path}.{field}", f"service {field} is required")
    port = service["port"]
    if not 1 <= port <= _LARGEST_PORT:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        yield invalid(f"{path}.port", port, why)
    url_path = service.get("path")
    if not url_path or url_path == "/":
        return
    if not url_path.startswith("/"):
        yield invalid(f"{path}.path", url_path, "must start with a '/'")
        return
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(f"{path}.path", url_path, f"segment[{index}] may not be empty")
        for fault in subdomain_faults(step) if step else ():
            yield invalid(f"{path}.path", url_path, f"segment[{index}]: {fault}")


# ---------------------------------------------------------------------- kinds

_COLUMNS = (
    length("Webhooks", "webhooks", description="number of webhooks"),
    age(),
)

MUTATING = kubernetes_kind(
    group=GROUP,
    plural="mutatingwebhookconfigurations",
    categories=("api-extensions",),
    view=MutatingWebhookConfiguration,
    namespaced=False,
    status=False,
    columns=_COLUMNS,
    default=_default_mutating,
    validate=_validate,
)
VALIDATING = kubernetes_kind(
    group=GROUP,
    plural="validatingwebhookconfigurations",
    categories=("api-extensions",),
    view=ValidatingWebhookConfiguration,
    namespaced=False,
    status=False,
    columns=_COLUMNS,
    default=_default,
    validate=_validate,
)
