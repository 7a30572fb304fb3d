"""Prometheus as the guide sets it up: the account, its token, and the scrape configuration."""

import re
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest
import yaml
from tests.exposition import Scrape

pytestmark = pytest.mark.conformance

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide" / "operations.md"
CHAPTER = re.search(r"^## Watch it with Prometheus\n(.*?)^##", GUIDE.read_text(), re.M | re.S)[1]


def scrape_config() -> dict:
    (block,) = re.findall(r"```yaml\n(# prometheus.yml\n.*?)```", CHAPTER, re.DOTALL)
    (config,) = yaml.safe_load(block)["scrape_configs"]
    return config


@pytest.fixture
def set_up(shell, tmp_path):
    """Types what the guide says, in a directory of the test's own; cleared away afterwards."""
    (block,) = re.findall(r"```console\n(.*?)```", CHAPTER, re.DOTALL)
    lines = [line.removeprefix("$ ") for line in block.splitlines()]
    subprocess.run(
        ["sh", "-ec", "\n".join(lines)], env=shell, cwd=tmp_path, check=True, timeout=120
    )
    yield tmp_path
    gone = ["kubectl", "delete", "namespace", "monitoring"]
    subprocess.run(gone, env=shell, check=True, timeout=120, stdout=subprocess.DEVNULL)


def scraper(config: dict, directory: Path) -> httpx2.Client:
    """A client that asks as Prometheus would, with these settings."""
    authorization = config["authorization"]
    token = (directory / authorization["credentials_file"]).read_text().strip()
    authority = directory / config["tls_config"]["ca_file"]
    return httpx2.Client(
        verify=ssl.create_default_context(cafile=str(authority)),
        headers={
            "Authorization": f"{authorization['type']} {token}",
            "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
        },
        timeout=120,
        trust_env=False,
    )


@pytest.mark.since("1.24")  # which brought kubectl create token
def test_prometheus_scrapes_with_the_configuration_of_the_guide(set_up, api):
    config = scrape_config()
    assert config["static_configs"] == [{"targets": ["127.0.0.1:6443"]}]
    where = f"{config['scheme']}://{api.base_url.netloc.decode()}"
    with scraper(config, set_up) as client:
        answer = client.get(where + config["metrics_path"])
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert "kubevirt_vmi_info" in answer.text
        secrets = client.get(f"{where}/api/v1/secrets")
        assert secrets.status_code == 403


def test_metrics_are_well_formed(api):
    scrape = Scrape(api.get("/metrics").text)
    assert all(family.documentation for family in scrape.families.values())
    assert {"process", "server", "loops"} <= {
        each["source"] for each in scrape.series("corral_scrape_failures_total")
    }
    seen = [(one.name, tuple(sorted(one.labels.items()))) for one in scrape.samples]
    assert len(seen) == len(set(seen))
