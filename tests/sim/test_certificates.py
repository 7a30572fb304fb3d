"""Requests for certificates: approved ones are signed, and all go when nobody needs them."""

import base64
from datetime import timedelta
from functools import partial

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from lightkube.models.certificates_v1 import CertificateSigningRequest
from tests.sim.cluster import Faults, cluster

from corral import pki
from corral.api.errors import NotFound
from corral.cluster import certificates
from corral.pki.certificates import new_key

pytestmark = pytest.mark.looptime

CLIENT = "kubernetes.io/kube-apiserver-client"


@pytest.fixture
def signer(tmp_path):
    pki.ensure(tmp_path / "pki")
    sign = partial(pki.sign_request, tmp_path / "pki")
    return certificates.signer({CLIENT: sign})


def encoded(name="eve"):
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
    builder = x509.CertificateSigningRequestBuilder(x509.Name(parts))
    signed = builder.sign(new_key(), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


async def ask_for(c, name="eve", *, decision="Approved", **spec):
    """Make a request, and decide about it."""
    fields = {"request": encoded(), "signerName": CLIENT, "usages": ["client auth"]} | spec
    sent = {"metadata": {"name": name}, "spec": fields}
    await c.client.create(CertificateSigningRequest, sent)
    if decision:
        document = {
            "metadata": {"name": name},
            "spec": fields,
            "status": {"conditions": [{"type": decision, "status": "True"}]},
        }
        await c.client.replace(CertificateSigningRequest, document, subresource="approval")


async def found(c, name="eve"):
    try:
        return await c.client.get(CertificateSigningRequest, name)
    except NotFound:
        return None


def state(request):
    """The types of a request's conditions, and whether it has a certificate."""
    status = request.status
    return [each.type for each in status.conditions or ()], bool(status.certificate)


def reaches(c, expected, name="eve"):
    async def is_so():
        request = await found(c, name)
        return request is not None and state(request) == expected

    return c.until(is_so)


async def test_an_approved_request_is_signed(signer):
    async with cluster(stand_ins=[signer]) as c:
        await ask_for(c)
        await reaches(c, (["Approved"], True))
        content = base64.b64decode((await found(c)).status.certificate)
        assert x509.load_pem_x509_certificate(content).subject.rfc4514_string() == "CN=eve"


@pytest.mark.parametrize(
    ("request_of", "why"),
    [
        ({"usages": ["server auth"]}, "invalid usage for client certificate: server auth"),
        (
            {"usages": ["digital signature"]},
            "missing required usage for client certificate: client auth",
        ),
        ({"request": encoded("")}, "the request names no user"),
    ],
)
async def test_a_request_that_cannot_be_signed_fails(signer, request_of, why):
    async with cluster(stand_ins=[signer]) as c:
        await ask_for(c, **request_of)
        await reaches(c, (["Approved", "Failed"], False))
        failed = (await found(c)).status.conditions[1]
        assert failed.reason == "SignerValidationFailure"
        assert why in failed.message


async def test_unapproved_and_foreign_requests_are_not_signed(signer):
    async with cluster(stand_ins=[signer]) as c:
        await ask_for(c, "pending", decision="")
        await ask_for(c, "denied", decision="Denied")
        await ask_for(c, "other", signerName="example.com/x")
        await ask_for(c, "last")
        await reaches(c, (["Approved"], True), "last")
        assert state(await found(c, "pending")) == ([], False)
        assert state(await found(c, "denied")) == (["Denied"], False)
        assert state(await found(c, "other")) == (["Approved"], False)


async def test_requests_are_signed_in_spite_of_faults(signer):
    faults = Faults(seed=11, fail=0.2, lose_answer=0.2, delay=0.5, cut=0.1, double=0.1)
    async with cluster(stand_ins=[signer], faults=faults) as c:
        await ask_for(c)
        await reaches(c, (["Approved"], True))


@pytest.mark.parametrize("decision", ["Denied", "Approved"])
async def test_a_decided_request_is_deleted_after_an_hour(signer, decision):
    async with cluster(stand_ins=[signer]) as c:
        begun = c.clock()
        await ask_for(c, decision=decision)

        async def is_gone():
            return await found(c) is None

        await c.until(is_gone, 2 * 3600, every=30)
        assert timedelta() <= c.clock() - begun - timedelta(hours=1) < timedelta(minutes=2)
