"""Webhooks: programs of users that are asked before anything is stored.

Those that change objects are asked one after the other, by the name of their configuration; some of
them again, where a later one changed the object once more.  Those that only say yes or no are asked
at the same time.  Texts and codes are those of Kubernetes (its mutating and validating webhook
plugins).
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
from corral.server.admission.dynamic.attributes import Act, namespace_labels, refused
from corral.server.admission.dynamic.configuration_cache import Configured
from corral.server.admission.dynamic.match_conditions import ConditionError, Conditions, bindings
from corral.server.admission.dynamic.matching import Selection, is_exempt
from corral.server.admission.dynamic.webhook_clients import SiteError, Sites
from corral.server.authz.authorizer import Authorizer
from corral.server.request.call import Call
from corral.store import Store

_LEAST_REFUSAL = 400
_SUCCESS = 200

log = structlog.get_logger()


class CallError(Exception):
    """A webhook could not be asked, or gave no answer."""


class Rejection(ApiError):
    """A webhook's refusal: it chooses code, reason and details itself."""

    _told: Document

    def status(self) -> Document:
        told = {**super().status(), **self._told}
        return {field: value for field, value in told.items() if value != ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One webhook of a configuration, ready to be asked."""

    configuration: str
    name: str
    client: Document
    selection: Selection
    conditions: Conditions
    fails_open: bool
    seconds: int
    review: str
    has_effects: bool
    is_asked_again: bool


def read(configuration: Document) -> tuple[Webhook, ...]:
    """The webhooks of a MutatingWebhookConfiguration or ValidatingWebhookConfiguration."""
    name = configuration["metadata"]["name"]
    return tuple(_webhook(name, each) for each in configuration.get("webhooks") or ())


def _webhook(configuration: str, document: Document) -> Webhook:
    spoken = document["admissionReviewVersions"]
    return Webhook(
        configuration=configuration,
        name=document["name"],
        client=document["clientConfig"],
        selection=Selection.of(document, "rules"),
        conditions=Conditions.of(document.get("matchConditions"), VARIABLES),
        fails_open=document.get("failurePolicy") == IGNORE,
        seconds=document["timeoutSeconds"],
        review=next(version for version in spoken if version in REVIEW_VERSIONS),
        has_effects=document.get("sideEffects") not in SIDE_EFFECTS,
        is_asked_again=document.get("reinvocationPolicy") == IF_NEEDED,
    )


class Webhooks:
    """All webhooks of one kind of configuration; one of the two reviewers below."""

    mutating: ClassVar[bool]
    notes: ClassVar[str]
    """What its notes in the audit log begin with."""

    def __init__(self, store: Store, kind: Kind, sites: Sites, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._sites = sites
        self._configured = Configured(store, kind, read)

    def concerns(self, call: Call) -> bool:
        """Whether there is any webhook at all."""
        return bool(self._configured) and not is_exempt(call, GROUP)

    def _wanting(self, act: Act, webhooks: Sequence[Webhook]) -> Iterator[tuple[Webhook, Version]]:
        """Those of some webhooks that want to be asked, and the version they want to see."""
        namespace = namespace_labels(self._store, act)
        for webhook in webhooks:
            version = webhook.selection.matches(act, namespace)
            if version is not None and self._holds(webhook, act, version):
                yield webhook, version

    def _holds(self, webhook: Webhook, act: Act, version: Version) -> bool:
        if not webhook.conditions.programs:
            return True
        try:
            return webhook.conditions.hold(bindings(act, version, self._authorizer))
        except ConditionError as error:
            if webhook.fails_open:
                log.warning("match conditions have no value", webhook=webhook.name, why=str(error))
                return False
            raise refused(act, str(error)) from None

    def _all(self) -> list[Webhook]:
        return [webhook for webhooks in self._configured.all() for webhook in webhooks]

    async def _ask(
        self, webhook: Webhook, act: Act, version: Version
    ) -> admission_review.Answer | None:
        """The answer of a webhook that lets the act pass; None where it may stay silent, and does.

        Raises Rejection, InternalError where there is no answer, and BadRequest where it may not
        be asked.
        """
        if act.dry and webhook.has_effects:
            raise BadRequest(f'admission webhook "{webhook.name}" does not support dry run')
        try:
            answer = await self._called(webhook, act, version)
        except CallError as error:
            if webhook.fails_open:
                log.warning("webhook failed, and is ignored", webhook=webhook.name, why=str(error))
                act.note(f"failed-open.{self.notes}/{webhook.name}", webhook.name)
                return None
            told = f'failed calling webhook "{webhook.name}": {error}'
            raise InternalError(
                f"Internal error occurred: {told}", details=Details(causes=[Cause("", told, "")])
            ) from None
        act.call.warnings += answer.warnings
        for key, value in answer.annotations.items():
            act.note(f"{webhook.name}/{key}", value)
        if not answer.allowed:
            raise rejection(webhook.name, answer.status)
        return answer

    async def _called(
        self, webhook: Webhook, act: Act, version: Version
    ) -> admission_review.Answer:
        """Raises CallError."""
        uid = random_uuid()
        body = admission_review.question(act, version, uid=uid, review=webhook.review)
        try:
            address = self._sites.find(webhook.client)
            site = await self._sites.site(address, webhook.client.get("caBundle") or "")
        except SiteError as error:
            raise CallError(f"failed to call webhook: {error}") from None
        path = f"{address.path}?timeout={webhook.seconds}s"
        try:
            status, said = await site.post(
                path,
                body,
                content_type="application/json",
                seconds=webhook.seconds,
                max_bytes=admission_review.LARGEST_ANSWER,
            )
        except Unavailable as error:
            raise CallError(
                f'failed to call webhook: Post "{address.told}{path}": {error.message}'
            ) from None
        if status != _SUCCESS:
            raise CallError(f"failed to call webhook: it answered with status {status}")
        try:
            return admission_review.read(
                said, uid=uid, review=webhook.review, mutating=self.mutating
            )
        except admission_review.AnswerError as error:
            raise CallError(f"received invalid webhook response: {error}") from None


class Validating(Webhooks):
    """Webhooks that only say yes or no."""

    mutating = False
    notes = "validating.webhook.admission.k8s.io"

    async def review(self, act: Act) -> None:
        """Ask all who want to be, at the same time; the first refusal counts."""
        wanting = list(self._wanting(act, self._all()))
        if not wanting:
            return
        async with act.call.without_seats():
            asked = [self._ask(webhook, act, version) for webhook, version in wanting]
            answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer


class Mutating(Webhooks):
    """Webhooks that may change objects."""

    mutating = True
    notes = "mutation.webhook.admission.k8s.io"

    async def review(self, act: Act) -> None:
        """Ask one after the other; then once more those who want to see what others changed."""
        again: set[int] = set()  # by their place
        seen: set[int] = set()
        webhooks = self._all()
        for index, webhook in enumerate(webhooks):
            for _webhook, version in self._wanting(act, [webhook]):
                if await self._changes(webhook, act, version, f"round_0_index_{index}"):
                    again |= seen
                    seen = set()
                if webhook.is_asked_again:
                    seen.add(index)
        for index in sorted(again):
            for webhook, version in self._wanting(act, [webhooks[index]]):
                await self._changes(webhook, act, version, f"round_1_index_{index}")

    async def _changes(self, webhook: Webhook, act: Act, version: Version, turn: str) -> bool:
        """Whether a webhook changed the object, in its turn; the audit log tells of it."""
        changed = await self._changed(webhook, act, version)
        told = {
            "configuration": webhook.configuration,
            "webhook": webhook.name,
            "mutated": changed,
        }
        act.note(f"{self.notes}/{turn}", encode(told).decode())
        return changed

    async def _changed(self, webhook: Webhook, act: Act, version: Version) -> bool:
        async with act.call.without_seats():
            answer = await self._ask(webhook, act, version)
        if answer is None or not answer.patch:
            return False
        before = act.seen(act.document, version)
        if before is None:
            raise InternalError(
                f'Internal error occurred: admission webhook "{webhook.name}" attempted to modify '
                "the object, which is not supported for this operation"
            )
        try:
            after = json_patch(before, answer.patch)
        except ApiError as error:
            raise InternalError(f"Internal error occurred: {error.message}") from None
        if same(before, after):
            return False
        act.document = act.taken(after, version)
        return True


def rejection(name: str, status: Document) -> ApiError:
    """The refusal by a webhook, with what it says itself."""
    denied = f'admission webhook "{name}" denied the request'
    why = status.get("message") or status.get("reason")
    message = f"{denied}: {why}" if why else f"{denied} without explanation"
    code = status.get("code")
    if type(code) is not int or not _LEAST_REFUSAL <= code < 600:
        code = _LEAST_REFUSAL
    told = {field: status[field] for field in ("reason", "details") if status.get(field)}
    body = {"code": code, "_told": {"reason": "", **told}}
    refusal: ApiError = type("Rejection", (Rejection,), body)(message)
    return refusal
