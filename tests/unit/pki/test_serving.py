import ssl
from datetime import UTC, datetime, timedelta

import pytest

from corral import pki
from corral.pki import certificates

HOSTS = ("corral-controllers.corral-system.svc", "127.0.0.1")


def test_missing_data_is_created():
    data = pki.renewed({}, HOSTS, "corral")
    assert set(data) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert set(pki.certificate_hosts(data["tls.crt"])) == set(HOSTS)
    ssl.create_default_context(cadata=data["ca.crt"].decode())


def test_valid_data_is_kept():
    data = pki.renewed({}, HOSTS, "corral")
    assert pki.renewed(data, HOSTS, "corral") is data


@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("damage", [b"", b"garbage"])
def test_a_damaged_certificate_is_issued_again_by_the_same_authority(name, damage):
    data = pki.renewed({}, HOSTS, "corral")
    repaired = pki.renewed({**data, name: damage}, HOSTS, "corral")
    assert repaired["ca.crt"] == data["ca.crt"]
    assert repaired["tls.crt"] != data["tls.crt"]
    assert pki.renewed(repaired, HOSTS, "corral") is repaired


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_a_damaged_authority_is_replaced(name):
    data = pki.renewed({}, HOSTS, "corral")
    repaired = pki.renewed({**data, name: b"garbage"}, HOSTS, "corral")
    assert repaired["ca.key"] != data["ca.key"]


def test_other_hosts_need_another_certificate():
    data = pki.renewed({}, HOSTS, "corral")
    other = pki.renewed(data, ["other.svc"], "corral")
    assert pki.certificate_hosts(other["tls.crt"]) == ("other.svc",)


def at(monkeypatch, days):
    """Set the clock of certificates some days ahead."""

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=days)

    monkeypatch.setattr(certificates, "datetime", Later)


def test_a_certificate_is_renewed_when_a_third_of_its_time_is_left(monkeypatch):
    data = pki.renewed({}, HOSTS, "corral")
    at(monkeypatch, 240)
    assert pki.renewed(data, HOSTS, "corral") is data
    at(monkeypatch, 250)
    renewed = pki.renewed(data, HOSTS, "corral")
    assert renewed["tls.crt"] != data["tls.crt"]
    assert renewed["ca.crt"] == data["ca.crt"]


def test_a_new_authority_precedes_the_valid_one(monkeypatch):
    data = pki.renewed({}, HOSTS, "corral")
    at(monkeypatch, 3400)
    renewed = pki.renewed(data, HOSTS, "corral")
    assert renewed["ca.crt"].endswith(data["ca.crt"])
    assert renewed["ca.crt"] != data["ca.crt"]
    assert pki.certificate_end(renewed["ca.crt"]) > datetime.now(UTC) + timedelta(days=6000)
