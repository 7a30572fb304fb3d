import pytest
from starlette.testclient import TestClient

from corral.daemon.health import health_app
from corral.metrics import Registry, gauge


@pytest.fixture
def faults():
    return []


@pytest.fixture
def client(faults):
    async def source():
        return [gauge("answers", "Of everything.", 42)]

    app = health_app(Registry(test=source), fault=lambda: ", ".join(faults))
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_a_healthy_process_is_ok(client, path):
    response = client.get(path)
    assert (response.status_code, response.text) == (200, "ok")


def test_a_process_is_alive_before_it_is_ready(client, faults):
    faults.append("no list yet of pods")
    assert client.get("/healthz").status_code == 200
    response = client.get("/readyz")
    assert (response.status_code, response.text) == (503, "not ready: no list yet of pods")


def test_metrics_are_served(client):
    assert "answers 42.0" in client.get("/metrics").text
