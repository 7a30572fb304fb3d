"""Webhooks that are functions of a test, and what they say."""

import base64
import json
from dataclasses import dataclass, field

from corral.api.errors import Unavailable
from corral.server.admission.dynamic.webhook_clients import WebhookClients

GROUP = "/apis/admissionregistration.k8s.io/v1"


@dataclass
class Hook:
    """A webhook: ``say`` gets the request of a review, and gives fields of the response.

    ``meanwhile`` is awaited before it answers.
    """

    say: object
    meanwhile: object = None
    reviews: list = field(default_factory=list)
    paths: list = field(default_factory=list)

    async def post(self, path, body, *, content_type, seconds, max_bytes):
        assert content_type == "application/json"
        review = json.loads(body)
        self.reviews.append(review["request"])
        self.paths.append(path)
        if self.meanwhile is not None:
            await self.meanwhile()
        said = self.say(review["request"])
        if isinstance(said, Exception):
            raise said
        if isinstance(said, tuple):
            return said
        response = {"uid": review["request"]["uid"], **said}
        kinds = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"]}
        return 200, json.dumps({**kinds, "response": response}).encode()


class FakeClients(WebhookClients):
    """WebhookClients that are hooks, by the host in their URL."""

    def __init__(self, store):
        super().__init__(store)
        self.hooks = {}

    async def client(self, address, bundle):
        return self.hooks[address.url.removeprefix("https://")]


def patch(*operations):
    """The response that changes an object."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def deny(**status):
    return {"allowed": False, "status": status}


def allow(_request):
    return {"allowed": True}


def unreachable(_request):
    return Unavailable("connect: connection refused")


RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
    "operations": ["*"],
}
