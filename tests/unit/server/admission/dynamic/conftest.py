"""A server whose webhooks are functions of the test, and a short way to configure them."""

import pytest
from tests.unit.server.admission.dynamic.hooks import GROUP, RULE, FakeClients, Hook


@pytest.fixture
def sites(ask, monkeypatch):
    server = ask.server
    fake = FakeClients(server.store)
    for reviewer in (*server.reviewers._mutating, *server.reviewers._validating):
        if hasattr(reviewer, "_clients"):
            monkeypatch.setattr(reviewer, "_clients", fake)
    return fake


@pytest.fixture
def configure(ask, sites):
    """Configures a webhook, and answers the hook that stands for it."""

    async def act(name, say, *, kind="Validating", meanwhile=None, rules=(RULE,), **fields):
        sites.hooks[name] = Hook(say, meanwhile)
        webhook = {
            "name": f"{name}.corral.example",
            "clientConfig": {"url": f"https://{name}"},
            "rules": list(rules),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }
        made = await ask(
            "POST",
            f"{GROUP}/{kind.lower()}webhookconfigurations",
            {"metadata": {"name": name}, "webhooks": [webhook]},
        )
        assert made.status == 201, made.text
        return sites.hooks[name]

    return act
