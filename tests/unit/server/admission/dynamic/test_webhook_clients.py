"""Tests of where webhooks are found, and of asking them over TLS."""

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager, suppress

import pytest
import trustme
from tests.unit.server.admission.dynamic.hooks import GROUP, RULE
from tests.unit.server.conftest import MAPS, SERVICES

from corral.server.admission.dynamic.webhook_clients import WebhookAddressError, WebhookClients

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
HOOK = {"name": "hook", "namespace": "default", "path": "/ask", "port": 443}
PORT = {"name": "https", "port": 443, "targetPort": 8443}


@pytest.fixture
def found(ask):
    return WebhookClients(ask.server.store).find


async def test_a_url_is_used_as_it_is(found):
    address = found({"url": "https://a.example:8443/ask"})
    assert (address.url, address.path, address.name) == ("https://a.example:8443", "/ask", "")


async def test_a_service_with_a_node_port_is_reached_by_it(ask, found):
    made = await ask(
        "POST",
        SERVICES,
        {
            "metadata": {"name": "hook"},
            "spec": {"type": "NodePort", "selector": {"app": "hook"}, "ports": [PORT]},
        },
    )
    port = made["spec"]["ports"][0]["nodePort"]
    address = found({"service": HOOK})
    assert address.url == f"https://127.0.0.1:{port}"
    assert address.display_url == "https://hook.default.svc:443"
    assert (address.path, address.name) == ("/ask", "hook.default.svc")


async def test_a_service_is_reached_at_an_endpoint_that_is_ready(ask, found):
    spec = {"metadata": {"name": "hook"}, "spec": {"ports": [PORT]}}
    assert (await ask("POST", SERVICES, spec)).status == 201
    with pytest.raises(WebhookAddressError, match='no endpoints available for service "hook"'):
        found({"service": HOOK})
    endpoints = [
        {"addresses": ["192.0.2.1"], "conditions": {"ready": False}},
        {"addresses": ["192.0.2.2"], "conditions": {"ready": True}},
    ]
    made = await ask(
        "POST",
        SLICES,
        {
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": 8443}],
            "endpoints": endpoints,
        },
    )
    assert made.status == 201, made.text
    assert found({"service": HOOK}).url == "https://192.0.2.2:8443"


async def test_an_external_name_service_resolves_to_that_name(ask, found):
    spec = {"type": "ExternalName", "externalName": "hooks.example"}
    await ask("POST", SERVICES, {"metadata": {"name": "hook"}, "spec": spec})
    assert found({"service": HOOK}).url == "https://hooks.example:443"


async def test_a_missing_service_or_port_is_an_error(ask, found):
    with pytest.raises(WebhookAddressError, match='service "hook" not found'):
        found({"service": HOOK})
    await ask("POST", SERVICES, {"metadata": {"name": "hook"}, "spec": {"ports": [PORT]}})
    with pytest.raises(WebhookAddressError, match='service "hook" does not have port 9'):
        found({"service": {**HOOK, "port": 9}})


# ---------------------------------------------------------------------- TLS


@asynccontextmanager
async def listening(authority, name, say):
    """A webhook over TLS: ``say`` gets the request of a review; answers its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)

    async def answer(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        review = json.loads(await reader.readexactly(length))
        response = {"uid": review["request"]["uid"], **say(review["request"])}
        envelope = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"]}
        body = json.dumps({**envelope, "response": response}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()
        with suppress(OSError):  # TLS takes a few rounds of the loop to close
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def configured(ask, client, authority):
    webhook = {
        "name": "deny.corral.example",
        "clientConfig": {
            **client,
            "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
        },
        "rules": [RULE],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    made = await ask(
        "POST",
        f"{GROUP}/validatingwebhookconfigurations",
        {"metadata": {"name": "deny"}, "webhooks": [webhook]},
    )
    assert made.status == 201, made.text


def deny(_request):
    return {"allowed": False, "status": {"message": "not today", "code": 403}}


A = {"metadata": {"name": "a"}}


async def test_a_webhook_is_called_over_tls_and_verified_by_its_ca_bundle(ask):
    authority = trustme.CA()
    async with listening(authority, "127.0.0.1", deny) as port:
        await configured(ask, {"url": f"https://127.0.0.1:{port}/x"}, authority)
        refused = await ask("POST", MAPS, A)
    assert (refused.status, refused["message"]) == (
        403,
        'admission webhook "deny.corral.example" denied the request: not today',
    )
    await ask.server.reviewers.aclose()


async def test_a_service_is_verified_by_its_dns_name(ask):
    authority = trustme.CA()
    spec = {"type": "ExternalName", "externalName": "localhost"}
    await ask("POST", SERVICES, {"metadata": {"name": "hook"}, "spec": spec})
    async with listening(authority, "hook.default.svc", deny) as port:
        await configured(ask, {"service": {**HOOK, "port": port}}, authority)
        refused = await ask("POST", MAPS, A)
    assert refused.status == 403, refused.text
    await ask.server.reviewers.aclose()


async def test_a_server_with_an_untrusted_certificate_is_not_called(ask):
    async with listening(trustme.CA(), "127.0.0.1", deny) as port:
        await configured(ask, {"url": f"https://127.0.0.1:{port}/x"}, trustme.CA())
        refused = await ask("POST", MAPS, A)
    assert refused.status == 500
    assert "certificate" in refused["message"].lower()
    await ask.server.reviewers.aclose()


async def test_an_invalid_ca_bundle_is_an_error(ask):
    class Nobody:
        class cert_pem:  # noqa: N801
            @staticmethod
            def bytes():
                return b"nonsense"

    await configured(ask, {"url": "https://127.0.0.1:1/x"}, Nobody)
    refused = await ask("POST", MAPS, A)
    assert "unable to load root certificates" in refused["message"]
