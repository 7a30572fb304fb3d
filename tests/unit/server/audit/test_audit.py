"""The audit log of requests, through the whole server."""

import asyncio
import errno
import json
import os
from unittest.mock import Mock

import pytest

from corral.api.request import Request, User
from corral.server.app import ApiServer
from corral.server.audit import DEFAULT, Audit, Log, Policy, lost_events_line
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.store import Store

SPACES = "/api/v1/namespaces"
SECRETS = "/api/v1/namespaces/lab/secrets"
BODY = {"metadata": {"name": "key", "managedFields": []}, "stringData": {"word": "hush"}}


DEEP = b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


class AuditedServer:
    """A server with an audit log; ``events`` are read when it is closed."""

    def __init__(self, path, policy):
        self.path = path
        self.store = Store.in_memory()
        self.clock = Clock()
        self.audit = Audit(policy, Log(path, lost_events_line), clock=self.clock)
        authenticator = Authenticator({"secret": ADMINISTRATOR, "other": User(name="bob")})
        self.server = ApiServer(self.store, authenticator=authenticator, audit=self.audit)

    async def ask(self, method, path, body=None, **headers):
        headers = {"authorization": "Bearer secret", "user-agent": "test/1", **headers}
        path, _, query = path.partition("?")
        request = Request(
            method=method, path=path, query=query, headers=headers, address="192.0.2.7"
        )
        request.body = json.dumps(body).encode() if body is not None else b""
        return await self.server.handle(request)

    async def events(self):
        await self.store.close()
        await self.audit.aclose()
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
async def audited(tmp_path, request):
    policy = DEFAULT
    if rules := getattr(request, "param", None):
        path = tmp_path / "policy.yaml"
        whole = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        path.write_text(json.dumps(whole | rules))
        policy = Policy.read(path)
    audited = AuditedServer(tmp_path / "audit.log", policy)
    await audited.ask("POST", SPACES, {"metadata": {"name": "lab"}})
    return audited


async def test_an_event_has_user_request_and_response(audited):
    answer = await audited.ask("POST", SECRETS, BODY)
    await audited.ask("GET", f"{SECRETS}/nosuch")
    events, text = await audited.events(), audited.path.read_text()
    assert [each["stage"] for each in events] == ["ResponseComplete"] * 3
    made, missing = events[1:]
    assert dict(answer.headers)["audit-id"] == made["auditID"]
    assert {made[name] for name in ("kind", "apiVersion", "level")} == {
        "Event",
        "audit.k8s.io/v1",
        "Metadata",
    }
    assert (made["verb"], made["requestURI"]) == ("create", SECRETS)
    assert made["user"] == {
        "username": "kubernetes-admin",
        "groups": ["system:masters", "system:authenticated"],
    }
    assert (made["sourceIPs"], made["userAgent"]) == (["192.0.2.7"], "test/1")
    assert made["objectRef"].pop("uid")
    assert made["objectRef"] == {
        "resource": "secrets",
        "namespace": "lab",
        "name": "key",
        "apiVersion": "v1",
    }
    assert made["responseStatus"] == {"metadata": {}, "code": 201}
    assert made["requestReceivedTimestamp"] <= made["stageTimestamp"]
    assert missing["responseStatus"]["reason"] == "NotFound"
    assert missing["objectRef"]["name"] == "nosuch"
    assert "hush" not in text
    assert "aHVzaA" not in text


async def test_the_event_of_a_creation_names_the_object(audited):
    await audited.ask("POST", SECRETS, {"metadata": {"generateName": "drawn-"}})
    await audited.ask("POST", SECRETS, BODY)
    await audited.ask("POST", SECRETS, BODY)
    body = b"metadata:\n  name: written\n"
    headers = {"authorization": "Bearer other", "content-type": "application/yaml"}
    request = Request(method="POST", path=SECRETS, headers=headers, body=body)
    await audited.server.handle(request)
    await audited.ask("POST", SECRETS, {"metadata": {"name": 7}})
    await audited.ask("POST", SECRETS, {"metadata": {"name": "n" * 5000}})
    drawn, made, again, forbidden, wrong, long = (
        (each["responseStatus"]["code"], each["objectRef"].get("name"))
        for each in (await audited.events())[1:]
    )
    assert drawn[0] == 201
    assert drawn[1].startswith("drawn-")
    assert [made, again, forbidden] == [(201, "key"), (409, "key"), (403, "written")]
    assert wrong == (400, None)
    assert long == (422, "n" * 1024)


async def test_anonymous_and_impersonating_users_are_recorded(audited):
    await audited.ask("GET", SECRETS, authorization="Bearer wrong")
    await audited.ask("GET", SECRETS, authorization="Bearer other", **{"impersonate-user": "eve"})
    await audited.ask("GET", SECRETS, **{"impersonate-user": "eve"})
    await audited.ask("GET", "/healthz")
    refused, cheeky, acting = (await audited.events())[1:]
    assert (refused["user"], refused["responseStatus"]["code"]) == ({}, 401)
    assert (cheeky["user"]["username"], cheeky["responseStatus"]["code"]) == ("bob", 403)
    assert acting["user"]["username"] == "kubernetes-admin"
    assert acting["impersonatedUser"]["username"] == "eve"


def left_out(event):
    return int(event.get("annotations", {}).get("corral.dev/omitted-events", 0))


@pytest.mark.parametrize("credentials", [{}, {"authorization": "Bearer wrong"}])
async def test_anonymous_requests_cannot_fill_the_log(audited, credentials, monkeypatch):
    """Nor displace the events of others: those that are omitted are counted."""
    monkeypatch.setattr("corral.server.audit.anonymous_quota.REPORT_SECONDS", 0.01)
    uri, count = f"{SECRETS}/{'x' * 8000}", 300

    async def flood():
        for _ in range(count):
            request = Request(method="GET", path=uri, headers=credentials)
            assert (await audited.server.handle(request)).status in (401, 403)

    await flood()
    assert (await audited.ask("GET", f"{SECRETS}/known")).status == 404
    async with asyncio.timeout(60):
        while "omitted-events" not in audited.path.read_text():
            await asyncio.sleep(0.01)
    audited.clock.seconds += 60
    await flood()
    metrics = (await audited.ask("GET", "/metrics")).body.decode()
    events, text = await audited.events(), audited.path.read_text()
    assert len(text) < (1 << 20) + (64 << 10) + 40_000
    assert [each["objectRef"]["name"] for each in events if "known" in str(each)] == ["known"]
    strangers = [each for each in events if each.get("requestURI") == uri]
    notes = [each for each in events if left_out(each)]
    assert len(strangers) + sum(map(left_out, notes)) == 2 * count
    assert len(notes) == 2, "the second is noted at the end"
    assert events.index(strangers[-1]) > events.index(notes[0]), "there is room again after a while"
    assert f"corral_audit_omitted_events_total {sum(map(left_out, notes))}.0" in metrics


async def test_events_have_the_reason_of_the_authorization_decision(audited):
    group = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    role = {"metadata": {"name": "reader"}, "rules": [rule]}
    binding = {
        "metadata": {"name": "readers"},
        "roleRef": {"kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "User", "name": "bob"}],
    }
    await audited.ask("POST", f"{group}/clusterroles", role)
    await audited.ask("POST", f"{group}/clusterrolebindings", binding)
    bob = {"authorization": "Bearer other"}
    for path in ("/api/v1/configmaps", "/api/v1/secrets", "/apis", "/nothing/of/this"):
        await audited.ask("GET", path, **bob)
    decision, reason = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
    explained = [
        (each["annotations"][decision], each["annotations"][reason])
        for each in await audited.events()
    ]
    assert explained[:3] == [("allow", "")] * 3, "administrators need no role"
    assert explained[3] == (
        "allow",
        'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "bob"',
    )
    assert explained[4:] == [("forbid", "")] * 3


@pytest.mark.parametrize("components", [True, False])
async def test_components_are_recorded_if_the_policy_says_so(tmp_path, components):
    """By where they are, not by their names: those may be anybody's."""
    path, store = tmp_path / "audit.log", Store.in_memory()
    audit = Audit(DEFAULT, Log(path, lost_events_line), components=components)
    server = ApiServer(store, audit=audit)
    node = User(name="system:node:one", groups=("system:nodes", "system:authenticated"))
    await server.handle(Request(method="GET", path="/api/v1/pods", user=node))
    await store.close()
    await audit.aclose()
    assert path.read_text().count("\n") == components


@pytest.mark.parametrize(
    "audited",
    [{"rules": [{"level": "RequestResponse"}], "omitManagedFields": True}],
    indirect=True,
)
async def test_bodies_are_recorded_if_the_policy_says_so(audited):
    await audited.ask("POST", SECRETS, BODY)
    await audited.ask("GET", SECRETS)
    await audited.ask("PUT", f"{SECRETS}/key", {"data": 7})
    events = (await audited.events())[2:]
    received, made, _, listed, _, refused = events
    assert [received["stage"], made["stage"]] == ["RequestReceived", "ResponseComplete"]
    assert received["auditID"] == made["auditID"]
    assert "requestObject" not in received
    assert made["requestObject"]["stringData"] == {"word": "hush"}
    assert made["responseObject"]["data"] == {"word": "aHVzaA=="}
    assert "managedFields" not in made["responseObject"]["metadata"]
    assert "managedFields" not in listed["responseObject"]["items"][0]["metadata"]
    assert refused["responseObject"]["kind"] == "Status"


@pytest.mark.parametrize("audited", [{"rules": [{"level": "Request"}]}], indirect=True)
@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 300, b"7", DEEP])
async def test_an_invalid_body_breaks_no_event(audited, body):
    request = Request(
        method="POST", path=SECRETS, headers={"authorization": "Bearer secret"}, body=body
    )
    await audited.server.handle(request)
    *_, event = await audited.events()
    assert event["responseStatus"]["code"] == 400


async def test_a_watch_has_events_at_its_start_and_end(audited):
    answer = await audited.ask("GET", f"{SECRETS}?watch=true&resourceVersion=1&timeoutSeconds=1")
    async for _ in answer.body:
        pass
    begun, ended = (await audited.events())[1:]
    assert (begun["stage"], ended["stage"]) == ("ResponseStarted", "ResponseComplete")
    assert begun["verb"] == ended["verb"] == "watch"
    assert begun["auditID"] == ended["auditID"]


async def test_a_failing_audit_log_is_reported_and_counted(audited, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "write", Mock(side_effect=full))
    await audited.ask("GET", SECRETS)
    async with asyncio.timeout(60):
        while not audited.audit.fault:
            await asyncio.sleep(0.001)
    answer = await audited.ask("GET", "/readyz/audit")
    assert answer.status == 500
    assert f"{audited.path} cannot be written: No space left".encode() in answer.body
    metrics = (await audited.ask("GET", "/metrics")).body.decode()
    assert 'apiserver_audit_error_total{plugin="log"} 0.0' not in metrics
    assert "corral_audit_lost_events_total 0.0" in metrics
    monkeypatch.undo()
    assert len(await audited.events()) == 3, "health is not logged"


async def test_a_large_body_is_omitted_with_a_note(audited, monkeypatch):
    monkeypatch.setattr("corral.server.audit.audit_event.MAX_CONTENT_BYTES", 10)
    audited.audit._policy = Policy(
        api_version="audit.k8s.io/v1",
        kind="Policy",
        rules=[type(DEFAULT.rules[0])(level="RequestResponse")],
    )
    await audited.ask("POST", SECRETS, BODY)
    *_, event = await audited.events()
    assert event["annotations"]["audit.k8s.io/truncated"] == "true"
    assert "requestObject" not in event


async def test_without_an_audit_log_responses_have_no_audit_id():
    store = Store.in_memory()
    server = ApiServer(store)
    answer = await server.handle(Request(method="GET", path="/version"))
    assert "audit-id" not in dict(answer.headers)
    await store.close()
