"""Ranges of addresses on the command line."""

from ipaddress import ip_address, ip_network

import click
import pytest
from click.testing import CliRunner

from corral.cli.address_options import (
    Address,
    Cidrs,
    Ports,
    Ranges,
    WebUrl,
    format_ranges,
    overlapping,
)
from corral.cli.main import corral
from corral.config import POD_CIDRS, SERVICE_CIDRS


def test_ranges_have_ipv4_first():
    both = (ip_network("10.1.0.0/16"), ip_network("fd01::/56"))
    assert Ranges().convert("10.1.0.0/16", None, None) == both[:1]
    assert Ranges().convert("fd01::/56, 10.1.0.0/16", None, None) == both
    assert Ranges().convert(format_ranges(both), None, None) == both


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.1.0.0", "too small"),
        ("10.1.0.1/16", "has host bits set"),
        ("fd01::/56", "name one range of IPv4"),
        ("10.1.0.0/16,10.2.0.0/16", "name one range of IPv4"),
        ("10.1.0.0/29", "use /28 or shorter"),
        ("ten", "does not appear to be"),
    ],
)
def test_invalid_ranges_are_rejected(text, message):
    with pytest.raises(click.BadParameter, match=message):
        Ranges().convert(text, None, None)


def test_addresses_are_parsed():
    assert Address().convert("192.0.2.1", None, None) == ip_address("192.0.2.1")
    with pytest.raises(click.BadParameter, match="does not appear"):
        Address().convert("here", None, None)


def test_overlapping_ranges_are_found():
    assert overlapping(POD_CIDRS, SERVICE_CIDRS) == ""
    wide = (ip_network("10.0.0.0/8"),)
    assert overlapping(wide, SERVICE_CIDRS) == "10.0.0.0/8 and 10.96.0.0/12"


def test_cidrs_are_ranges_and_addresses():
    found = Cidrs().convert("127.0.0.0/8, 192.0.2.7,fd01::/64,10.0.0.0/8", None, None)
    assert list(map(str, found)) == ["127.0.0.0/8", "192.0.2.7/32", "fd01::/64", "10.0.0.0/8"]
    assert Cidrs().convert(found, None, None) == found
    with pytest.raises(click.BadParameter, match="has host bits set: write it as"):
        Cidrs().convert("10.1.0.1/16", None, None)


def test_ports_are_numbers_and_ranges():
    found = Ports().convert("5432, 8000-8099,1-1", None, None)
    assert found == (range(5432, 5433), range(8000, 8100), range(1, 2))
    assert Ports().convert(format_ranges(found), None, None) == found


@pytest.mark.parametrize("text", ["0", "65536", "9-8", "a", "", "1-2-3", "-5"])
def test_invalid_ports_are_rejected(text):
    with pytest.raises(click.BadParameter, match="is no port from 1 to 65535"):
        Ports().convert(text, None, None)


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
        ("https://prometheus.example/behind/", "https://prometheus.example/behind"),
        ("http://[::1]:9090/", "http://[::1]:9090"),
        ("", ""),
    ],
)
def test_urls_of_web_servers_are_normalized(typed, url):
    assert WebUrl().convert(typed, None, None) == url


@pytest.mark.parametrize(
    ("typed", "message"),
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
def test_invalid_urls_are_rejected_with_the_reason(typed, message):
    with pytest.raises(click.BadParameter, match=message) as raised:
        WebUrl().convert(typed, None, None)
    assert "secret" not in str(raised.value)


def test_metric_rules_without_prometheus_are_rejected(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("defaults: true")
    run = CliRunner().invoke(
        corral, ["up", "--data-dir", str(tmp_path / "d"), "--metric-rules", str(rules)]
    )
    assert run.exit_code != 0
    assert "there is no Prometheus" in str(run.exception) + run.output
