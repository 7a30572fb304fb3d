"""Tests of when requests for certificates are to go, without any loop."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from lightkube.models.certificates_v1 import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
)
from lightkube.models.meta_v1 import ObjectMeta

from corral import pki
from corral.cluster.certificates.csr_cleaner import end_of
from corral.cluster.certificates.csr_signer import is_waiting, require_usages

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def certificate(tmp_path):
    """One that lasts an hour from now, as a field holds it."""
    pki.ensure(tmp_path)
    made = pki.credentials(tmp_path, "eve", (), HOUR).certificate
    return base64.b64encode(made).decode()


def request(*conditions, certificate=None):
    return CertificateSigningRequest(
        metadata=ObjectMeta(name="eve", creationTimestamp=BEGUN),
        spec=CertificateSigningRequestSpec(request="", signerName="example.com/x"),
        status=CertificateSigningRequestStatus(
            conditions=[
                CertificateSigningRequestCondition(
                    type=each, status="True", lastUpdateTime=BEGUN + HOUR
                )
                for each in conditions
            ],
            certificate=certificate,
        ),
    )


@pytest.mark.parametrize(
    ("conditions", "after"),
    [
        ([], 24 * HOUR),
        (["Denied"], 2 * HOUR),
        (["Failed"], 2 * HOUR),
        (["Approved", "Failed"], 2 * HOUR),
    ],
)
def test_a_request_is_deleted_some_time_after_its_last_change(conditions, after):
    assert end_of(request(*conditions)) == BEGUN + after


def test_an_approved_request_is_kept_for_its_signer():
    assert end_of(request("Approved")) is None
    assert is_waiting(request("Approved"))


@pytest.mark.parametrize("conditions", [[], ["Denied"], ["Failed"], ["Approved", "Failed"]])
def test_a_signer_waits_for_approval_and_tries_once(conditions):
    assert not is_waiting(request(*conditions))


def test_a_signed_request_is_deleted_after_its_retention(certificate):
    signed = request("Approved", certificate=certificate)
    assert end_of(signed) == BEGUN + 2 * HOUR
    assert not is_waiting(signed)


def test_a_signed_request_is_deleted_when_its_certificate_expires(certificate):
    signed = request("Approved", certificate=certificate)
    signed.status.conditions[0].lastUpdateTime = datetime.now(UTC) + 24 * HOUR
    ends = pki.certificate_end(base64.b64decode(certificate))
    assert end_of(signed) == ends


def test_an_unreadable_certificate_does_not_expire():
    other = base64.b64encode(b"of another form").decode()
    assert end_of(request("Approved", certificate=other)) == BEGUN + 2 * HOUR


def test_a_client_certificate_is_for_client_authentication():
    require_usages(["client auth", "digital signature", "key encipherment"])
    for usages in ([], ["digital signature"], ["client auth", "server auth"]):
        with pytest.raises(ValueError, match="usage"):
            require_usages(usages)
