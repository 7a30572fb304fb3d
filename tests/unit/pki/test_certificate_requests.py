"""Certificate signing requests: parsing and signing."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from corral import pki
from corral.pki import certificates

PEM = serialization.Encoding.PEM


def rsa_key():
    return rsa.generate_private_key(65537, 2048)


def request(key=None, *, name="eve", groups=("lab",)):
    """A request in PEM."""
    key = key or certificates.new_key()
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    parts += [x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else []
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    return builder.sign(key, digest).public_bytes(PEM)


@pytest.mark.parametrize(
    "make_key",
    [
        certificates.new_key,
        lambda: ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate,
        rsa_key,
    ],
    ids=["P-256", "P-384", "Ed25519", "RSA"],
)
def test_a_request_has_name_and_groups(make_key):
    key = make_key()
    parsed = pki.read_request(b"some words before\n" + request(key, groups=("lab", "night")))
    assert (parsed.name, parsed.groups) == ("eve", ("lab", "night"))
    assert parsed.key == key.public_key()


def changed(content):
    """Return the same request with another name, which its key has not signed."""
    der = x509.load_pem_x509_csr(content).public_bytes(serialization.Encoding.DER)
    forged = der.replace(b"eve", b"bob")
    return x509.load_der_x509_csr(forged).public_bytes(PEM)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "PEM block type must be CERTIFICATE REQUEST"),
        (b"-----BEGIN CERTIFICATE REQUEST-----", "PEM block type must be CERTIFICATE REQUEST"),
        (certificates.key_pem(certificates.new_key()), "PEM block type must be CERTIFICATE"),
        (
            b"-----BEGIN CERTIFICATE REQUEST-----\nbm90aGluZw==\n-----END CERTIFICATE REQUEST-----",
            "asn1",
        ),
    ],
    ids=["nothing", "no end", "a key", "no request"],
)
def test_other_content_is_rejected(content, fault):
    with pytest.raises(ValueError, match=fault):
        pki.read_request(content)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: changed(request()), "x509: ECDSA verification failure"),
        (lambda: changed(request(rsa_key())), "crypto/rsa: verification error"),
        (lambda: request(dsa.generate_private_key(1024)), "algorithm unimplemented"),
    ],
    ids=["forged", "forged RSA", "a strange key"],
)
def test_an_invalid_signature_is_rejected(make, fault):
    content = make()
    with pytest.raises(ValueError, match=fault):
        pki.read_request(content)


@pytest.mark.parametrize(
    ("seconds", "days"), [(None, 365), (3600, 1 / 24), (10 * 365 * 86400, 365)]
)
def test_a_certificate_has_the_subject_and_the_requested_lifetime(tmp_path, seconds, days):
    pki.ensure(tmp_path / "pki")
    key = certificates.new_key()
    signed = pki.sign_request(tmp_path / "pki", request(key, groups=("lab", "night")), seconds)
    assert pki.certificate_fault(signed) == ""
    certificate = x509.load_pem_x509_certificate(signed)
    assert certificate.subject.rfc4514_string() == "CN=eve,O=night,O=lab"
    assert certificate.public_key() == key.public_key()
    (authority,) = certificates.read_bundle(tmp_path / "pki/clients.crt")
    certificate.verify_directly_issued_by(authority)
    lasts = certificate.not_valid_after_utc - datetime.now(UTC)
    assert abs(lasts - timedelta(days=days)) < timedelta(minutes=5)
    assert pki.certificate_end(signed) == certificate.not_valid_after_utc


def test_only_the_subject_of_a_request_is_signed(tmp_path):
    pki.ensure(tmp_path / "pki")
    builder = x509.CertificateSigningRequestBuilder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "eve")])
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    sent = builder.sign(certificates.new_key(), hashes.SHA256()).public_bytes(PEM)
    certificate = x509.load_pem_x509_certificate(pki.sign_request(tmp_path / "pki", sent, None))
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert not constraints.value.ca


def test_a_request_without_a_name_is_rejected(tmp_path):
    pki.ensure(tmp_path / "pki")
    with pytest.raises(ValueError, match="no common name"):
        pki.sign_request(tmp_path / "pki", request(name=""), None)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"nothing", "must contain at least one CERTIFICATE PEM block"),
        (request(), 'only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"'),
        (
            b"-----BEGIN CERTIFICATE-----\nA: b\n\nbm90aGluZw==\n-----END CERTIFICATE-----",
            "no PEM block headers are permitted",
        ),
        (b"-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----", "x509: "),
    ],
)
def test_an_invalid_certificate_is_an_error(content, fault):
    assert pki.certificate_fault(content).startswith(fault)
    assert pki.certificate_end(content) is None
