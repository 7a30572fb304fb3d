"""The address of a Prometheus, as somebody types it."""

import click
import pytest
from click.testing import CliRunner

from corral.cli.main import corral
from corral.cli.manager.web_address import Web


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
        ("https://prometheus.example/behind/", "https://prometheus.example/behind"),
        ("http://[::1]:9090/", "http://[::1]:9090"),
        ("", ""),
    ],
)
def test_addresses_of_web_servers(typed, url):
    assert Web().convert(typed, None, None) == url


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("localhost:9090", "must be http://HOST:PORT"),
        ("ftp://host", "must be http://HOST:PORT"),
        ("http://", "must be http://HOST:PORT"),
        ("http://host:99999", "Port out of range"),
        ("http://host:x", "Port could not be cast"),
        ("http://[::1", "Invalid IPv6"),
        ("http://me:secret@host", "would be seen by everybody"),
        ("http://host/?query=up", "must end with its path"),
        ("http://host/a b", "must end with its path"),
        ("http://host/\x1b", "must be http://HOST:PORT"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(typed, why):
    with pytest.raises(click.BadParameter, match=why) as raised:
        Web().convert(typed, None, None)
    assert "secret" not in str(raised.value)


def test_rules_without_a_prometheus_are_refused(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("defaults: true")
    run = CliRunner().invoke(
        corral, ["up", "--data-dir", str(tmp_path / "d"), "--metric-rules", str(rules)]
    )
    assert run.exit_code != 0
    assert "there is no Prometheus to ask" in str(run.exception) + run.output
