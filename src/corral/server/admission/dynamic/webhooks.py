"""Admission webhooks: calls before an object is stored.

Mutating webhooks are called one after the other, in the order of their configurations' names;
those with reinvocationPolicy IfNeeded again, if a later one changed the object.  Validating
webhooks are called concurrently.  Messages and codes are those of Kubernetes' webhook plugins.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import structlog

from corral.api.encoding import encode, same
from corral.api.errors import (
    ApiError,
    BadRequest,
    Cause,
    Details,
    InternalError,
    Unavailable,
)
from corral.api.kind import Kind, Version
from corral.api.kinds.admissionregistration.match_rules import GROUP, IGNORE, VARIABLES
from corral.api.kinds.admissionregistration.webhooks import (
    IF_NEEDED,
    REVIEW_VERSIONS,
    SIDE_EFFECTS,
)
from corral.api.object import Document
from corral.api.patch.json import json_patch
from corral.api.uid import random_uuid
from corral.server.admission.dynamic import admission_review
from corral.server.admission.dynamic.attributes import (
    AdmissionAttributes,
    namespace_labels,
    new_forbidden,
)
from corral.server.admission.dynamic.configuration_cache import ConfigurationCache
from corral.server.admission.dynamic.match_conditions import (
    ConditionError,
    MatchConditions,
    cel_bindings,
)
from corral.server.admission.dynamic.matching import Selection, is_exempt
from corral.server.admission.dynamic.webhook_clients import WebhookAddressError, WebhookClients
from corral.server.authz.authorizer import Authorizer
from corral.server.request.call import Call
from corral.store import Store

_MIN_ERROR_CODE = 400
_SUCCESS = 200

log = structlog.get_logger()


class CallError(Exception):
    """A webhook that could not be called, or did not respond."""


class Rejection(ApiError):
    """A webhook's denial, with the code, reason and details of its response."""

    _fields: Document

    def status(self) -> Document:
        status = {**super().status(), **self._fields}
        return {field: value for field, value in status.items() if value != ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One parsed webhook of a configuration."""

    configuration: str
    name: str
    client_config: Document
    selection: Selection
    conditions: MatchConditions
    fails_open: bool
    seconds: int
    review: str
    has_effects: bool
    reinvoke: bool


def read(configuration: Document) -> tuple[Webhook, ...]:
    """Parse a MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""
    name = configuration["metadata"]["name"]
    return tuple(_webhook(name, each) for each in configuration.get("webhooks") or ())


def _webhook(configuration: str, document: Document) -> Webhook:
    versions = document["admissionReviewVersions"]
    return Webhook(
        configuration=configuration,
        name=document["name"],
        client_config=document["clientConfig"],
        selection=Selection.of(document, "rules"),
        conditions=MatchConditions.of(document.get("matchConditions"), VARIABLES),
        fails_open=document.get("failurePolicy") == IGNORE,
        seconds=document["timeoutSeconds"],
        review=next(version for version in versions if version in REVIEW_VERSIONS),
        has_effects=document.get("sideEffects") not in SIDE_EFFECTS,
        reinvoke=document.get("reinvocationPolicy") == IF_NEEDED,
    )


class Webhooks:
    """The webhooks of one kind of configuration; the base of the two reviewers below."""

    mutating: ClassVar[bool]
    annotation_prefix: ClassVar[str]
    """Prefix of its audit annotations."""

    def __init__(
        self, store: Store, kind: Kind, clients: WebhookClients, authorizer: Authorizer
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._clients = clients
        self._configured = ConfigurationCache(store, kind, read)

    def handles(self, call: Call) -> bool:
        """Return whether any webhook is configured."""
        return bool(self._configured) and not is_exempt(call, GROUP)

    def _matching(
        self, attr: AdmissionAttributes, webhooks: Sequence[Webhook]
    ) -> Iterator[tuple[Webhook, Version]]:
        """Yield the webhooks that match an operation, and the version in which to send it."""
        namespace = namespace_labels(self._store, attr)
        for webhook in webhooks:
            version = webhook.selection.matches(attr, namespace)
            if version is not None and self._conditions_match(webhook, attr, version):
                yield webhook, version

    def _conditions_match(
        self, webhook: Webhook, attr: AdmissionAttributes, version: Version
    ) -> bool:
        if not webhook.conditions.programs:
            return True
        try:
            return webhook.conditions.match(cel_bindings(attr, version, self._authorizer))
        except ConditionError as error:
            if webhook.fails_open:
                log.warning("match conditions failed", webhook=webhook.name, error=str(error))
                return False
            raise new_forbidden(attr, str(error)) from None

    def _all(self) -> list[Webhook]:
        return [webhook for webhooks in self._configured.all() for webhook in webhooks]

    async def _review(
        self, webhook: Webhook, attr: AdmissionAttributes, version: Version
    ) -> admission_review.ReviewResponse | None:
        """Return the response of a webhook that allows an operation; None if it failed open.

        Raises Rejection for a denial, InternalError for a failure, and BadRequest for a dry run
        with a webhook that has side effects.
        """
        if attr.dry_run and webhook.has_effects:
            raise BadRequest(f'admission webhook "{webhook.name}" does not support dry run')
        try:
            response = await self._call(webhook, attr, version)
        except CallError as error:
            if webhook.fails_open:
                log.warning("webhook failed open", webhook=webhook.name, error=str(error))
                attr.add_annotation(
                    f"failed-open.{self.annotation_prefix}/{webhook.name}", webhook.name
                )
                return None
            message = f'failed calling webhook "{webhook.name}": {error}'
            raise InternalError(
                f"Internal error occurred: {message}",
                details=Details(causes=[Cause("", message, "")]),
            ) from None
        attr.call.warnings += response.warnings
        for key, value in response.annotations.items():
            attr.add_annotation(f"{webhook.name}/{key}", value)
        if not response.allowed:
            raise rejection(webhook.name, response.status)
        return response

    async def _call(
        self, webhook: Webhook, attr: AdmissionAttributes, version: Version
    ) -> admission_review.ReviewResponse:
        """Call a webhook.  Raises CallError."""
        uid = random_uuid()
        body = admission_review.encode_request(attr, version, uid=uid, review=webhook.review)
        try:
            address = self._clients.find(webhook.client_config)
            client = await self._clients.client(
                address, webhook.client_config.get("caBundle") or ""
            )
        except WebhookAddressError as error:
            raise CallError(f"failed to call webhook: {error}") from None
        path = f"{address.path}?timeout={webhook.seconds}s"
        try:
            status, response_body = await client.post(
                path,
                body,
                content_type="application/json",
                seconds=webhook.seconds,
                max_bytes=admission_review.MAX_RESPONSE_BYTES,
            )
        except Unavailable as error:
            raise CallError(
                f'failed to call webhook: Post "{address.display_url}{path}": {error.message}'
            ) from None
        if status != _SUCCESS:
            raise CallError(f"failed to call webhook: it answered with status {status}")
        try:
            return admission_review.decode_response(
                response_body, uid=uid, review=webhook.review, mutating=self.mutating
            )
        except admission_review.ReviewError as error:
            raise CallError(f"received invalid webhook response: {error}") from None


class ValidatingWebhooks(Webhooks):
    """The reviewer of ValidatingWebhookConfigurations."""

    mutating = False
    annotation_prefix = "validating.webhook.admission.k8s.io"

    async def review(self, attr: AdmissionAttributes) -> None:
        """Call all matching webhooks concurrently; raise the first error."""
        matching = list(self._matching(attr, self._all()))
        if not matching:
            return
        async with attr.call.without_seats():
            reviews = [self._review(webhook, attr, version) for webhook, version in matching]
            responses = await asyncio.gather(*reviews, return_exceptions=True)
        for response in responses:
            if isinstance(response, BaseException):
                raise response


class MutatingWebhooks(Webhooks):
    """The reviewer of MutatingWebhookConfigurations."""

    mutating = True
    annotation_prefix = "mutation.webhook.admission.k8s.io"

    async def review(self, attr: AdmissionAttributes) -> None:
        """Call matching webhooks in order; then reinvoke those before later changes, if needed."""
        to_reinvoke: set[int] = set()  # indexes
        reviewed: set[int] = set()
        webhooks = self._all()
        for index, webhook in enumerate(webhooks):
            for _webhook, version in self._matching(attr, [webhook]):
                if await self._mutate_and_annotate(
                    webhook, attr, version, f"round_0_index_{index}"
                ):
                    to_reinvoke |= reviewed
                    reviewed = set()
                if webhook.reinvoke:
                    reviewed.add(index)
        for index in sorted(to_reinvoke):
            for webhook, version in self._matching(attr, [webhooks[index]]):
                await self._mutate_and_annotate(webhook, attr, version, f"round_1_index_{index}")

    async def _mutate_and_annotate(
        self, webhook: Webhook, attr: AdmissionAttributes, version: Version, round_name: str
    ) -> bool:
        """Call a webhook, annotate the audit event; return whether it changed the object."""
        changed = await self._mutate(webhook, attr, version)
        message = {
            "configuration": webhook.configuration,
            "webhook": webhook.name,
            "mutated": changed,
        }
        attr.add_annotation(f"{self.annotation_prefix}/{round_name}", encode(message).decode())
        return changed

    async def _mutate(self, webhook: Webhook, attr: AdmissionAttributes, version: Version) -> bool:
        async with attr.call.without_seats():
            response = await self._review(webhook, attr, version)
        if response is None or not response.patch:
            return False
        before = attr.versioned(attr.document, version)
        if before is None:
            raise InternalError(
                f'Internal error occurred: admission webhook "{webhook.name}" attempted to modify '
                "the object, which is not supported for this operation"
            )
        try:
            after = json_patch(before, response.patch)
        except ApiError as error:
            raise InternalError(f"Internal error occurred: {error.message}") from None
        if same(before, after):
            return False
        attr.document = attr.from_versioned(after, version)
        return True


def rejection(name: str, status: Document) -> ApiError:
    """Return the error of a webhook's denial, with the status of its response."""
    denial = f'admission webhook "{name}" denied the request'
    why = status.get("message") or status.get("reason")
    message = f"{denial}: {why}" if why else f"{denial} without explanation"
    code = status.get("code")
    if type(code) is not int or not _MIN_ERROR_CODE <= code < 600:
        code = _MIN_ERROR_CODE
    fields = {field: status[field] for field in ("reason", "details") if status.get(field)}
    body = {"code": code, "_fields": {"reason": "", **fields}}
    refusal: ApiError = type("Rejection", (Rejection,), body)(message)
    return refusal
