"""Tests of requests for certificates: whose they are, and who approves and signs them."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from tests.unit.server.authz.test_authorizer import bind, role, rule, user

from corral import pki
from corral.pki import certificates

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
EVE = f"{REQUESTS}/eve"
CLIENT = "kubernetes.io/kube-apiserver-client"
APPROVED = {"type": "Approved", "status": "True", "reason": "Seen"}
DENIED = {"type": "Denied", "status": "True"}
FAILED = {"type": "Failed", "status": "True"}


def encoded(*groups, name="eve"):
    """A request for a certificate, as a field holds it."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder(subject)
    signed = builder.sign(certificates.new_key(), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def signing_request(name="eve", **spec):
    fields = {"request": encoded(), "signerName": CLIENT, "usages": ["client auth"]} | spec
    return {"metadata": {"name": name}, "spec": fields}


@pytest.fixture
def certificate(tmp_path):
    """A certificate, as a field holds it."""
    pki.ensure(tmp_path / "pki")
    signed = pki.sign_request(tmp_path / "pki", base64.b64decode(encoded()), None)
    return base64.b64encode(signed).decode()


async def let(ask, name, verbs, resource, *, names=()):
    """Let a user do something, by a role of that name."""
    granted = rule(verbs, resource, apiGroups=["certificates.k8s.io"], resourceNames=list(names))
    made = f"{name}-{resource.replace('/', '-')}"
    await role(ask, made, granted, namespace="")
    await bind(ask, made, "ClusterRole", made, user(name), namespace="")


async def test_the_requester_is_the_authenticated_user(ask):
    await let(ask, "lab1", "create update", "certificatesigningrequests")
    lab1 = ask.as_user("lab1", "students")
    forged = signing_request(
        username="root", groups=["system:masters"], uid="1", extra={"a": ["b"]}
    )
    answer = await lab1("POST", REQUESTS, forged | {"status": {"conditions": [APPROVED]}})
    assert answer.status == 201
    spec = answer["spec"]
    assert (spec["username"], spec["groups"]) == ("lab1", ["students", "system:authenticated"])
    assert not {"uid", "extra"} & set(spec)
    assert answer["status"] == {}
    changed = answer.document | {"spec": spec | {"username": "root", "signerName": "a.b/c"}}
    changed["metadata"]["labels"] = {"seen": "yes"}
    answer = await lab1("PUT", EVE, changed | {"status": {"conditions": [APPROVED]}})
    assert answer.status == 200
    assert answer.metadata["labels"] == {"seen": "yes"}
    assert (answer["spec"], answer["status"]) == (spec, {})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"usages": []}, "spec.usages: Required value"),
        ({"usages": ["fun"]}, 'spec.usages[0]: Unsupported value: "fun": supported values: "any",'),
        (
            {"usages": ["client auth", "client auth"]},
            'spec.usages[1]: Duplicate value: "client auth"',
        ),
        ({"signerName": ""}, "spec.signerName: Required value"),
        (
            {"signerName": "kubernetes.io/legacy-unknown"},
            'Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed',
        ),
        (
            {"signerName": "me"},
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            {"signerName": "me/you"},
            'spec.signerName: Invalid value: "me": should be a domain with at least two segments',
        ),
        (
            {"signerName": "a.b/C"},
            'spec.signerName: Invalid value: "C": validating label "C": a lo',
        ),
        (
            {"expirationSeconds": 599},
            "Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ),
        ({"request": "bm8="}, ': "bm8=": PEM block type must be CERTIFICATE REQUEST'),
    ],
)
async def test_an_invalid_request_is_rejected(ask, spec, message):
    answer = await ask("POST", REQUESTS, signing_request(**spec))
    assert answer.status == 422
    assert message in answer["message"]


async def test_every_fault_of_a_request_is_reported(ask):
    answer = await ask("POST", REQUESTS, signing_request(request="bm8=", usages=[]))
    fields = [cause["field"] for cause in answer["details"]["causes"]]
    assert fields == ["spec.request", "spec.usages"]


async def test_invalid_base64_is_a_bad_request(ask):
    answer = await ask("POST", REQUESTS, signing_request(request="?!"))
    assert answer.status == 400
    assert "illegal base64 data" in answer["message"]


async def test_certificates_of_administrators_are_rejected(ask):
    answer = await ask("POST", REQUESTS, signing_request(request=encoded("lab", "system:masters")))
    assert answer.status == 403
    assert answer["message"] == (
        'certificatesigningrequests.certificates.k8s.io "eve" is forbidden: use of '
        "kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    )
    others = signing_request(request=encoded("system:masters"), signerName="example.com/x")
    assert (await ask("POST", REQUESTS, others)).status == 201


async def decide(asker, *conditions, door="approval", **status):
    """Put conditions, and other fields, into the status of the request."""
    document = (await asker("GET", EVE)).document
    document["status"] = document.get("status", {}) | status | {"conditions": list(conditions)}
    return await asker("PUT", f"{EVE}/{door}", document)


async def test_approvers_need_the_right_to_approve_for_the_signer(ask):
    await ask("POST", REQUESTS, signing_request())
    await let(ask, "boss", "get update", "certificatesigningrequests/approval")
    await let(ask, "boss", "get", "certificatesigningrequests")
    boss = ask.as_user("boss")
    answer = await decide(boss, APPROVED)
    assert answer.status == 403
    assert answer["message"] == (
        'certificatesigningrequests.certificates.k8s.io "eve" is forbidden: user not permitted to '
        'approve requests with signerName "kubernetes.io/kube-apiserver-client"'
    )
    await let(ask, "boss", "approve", "signers", names=["kubernetes.io/*"])
    answer = await decide(boss, APPROVED)
    assert answer.status == 200
    (condition,) = answer["status"]["conditions"]
    assert condition["lastUpdateTime"] == condition["lastTransitionTime"] != ""


async def test_signers_need_the_right_to_sign_for_the_signer(ask, certificate):
    await ask("POST", REQUESTS, signing_request(signerName="example.com/x"))
    await decide(ask, APPROVED)
    await let(ask, "pen", "update", "certificatesigningrequests/status")
    await let(ask, "pen", "get", "certificatesigningrequests")
    pen = ask.as_user("pen")
    refused = await decide(pen, APPROVED, door="status", certificate=certificate)
    assert refused.status == 403
    assert (
        'user not permitted to sign requests with signerName "example.com/x"' in refused["message"]
    )
    await let(ask, "pen", "sign", "signers", names=["example.com/x"])
    signed = await decide(pen, APPROVED, door="status", certificate=certificate)
    assert signed["status"]["certificate"] == certificate


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([APPROVED], [], 'updates may not remove a condition of type "Approved"'),
        ([APPROVED], [APPROVED, DENIED], "Approved and Denied conditions are mutually exclusive"),
        ([], [APPROVED, APPROVED], 'status.conditions[1].type: Duplicate value: "Approved"'),
        ([], [APPROVED | {"status": "False"}], 'Unsupported value: "False": supported values: "Tr'),
        ([], [{"type": "", "status": "True"}], "status.conditions[0].type: Required value"),
    ],
)
async def test_decisions_cannot_be_removed_or_contradict_each_other(ask, before, after, message):
    await ask("POST", REQUESTS, signing_request())
    if before:
        assert (await decide(ask, *before)).status == 200
    answer = await decide(ask, *after)
    assert answer.status == 422
    assert message in answer["message"]


async def test_the_approval_subresource_sets_no_certificate(ask, certificate):
    await ask("POST", REQUESTS, signing_request())
    answer = await decide(ask, APPROVED, certificate=certificate)
    assert answer.status == 200
    assert "certificate" not in answer["status"]


async def test_the_status_subresource_approves_nothing(ask):
    await ask("POST", REQUESTS, signing_request())
    answer = await decide(ask, APPROVED, door="status")
    assert answer.status == 422
    assert 'updates may not add a condition of type "Approved"' in answer["message"]
    assert (await decide(ask, FAILED, door="status")).status == 200


async def test_the_status_subresource_keeps_the_approval(ask, certificate):
    await ask("POST", REQUESTS, signing_request())
    approved = await decide(ask, APPROVED)
    other = APPROVED | {"reason": "Other"}
    answer = await decide(ask, other, door="status", certificate=certificate)
    assert answer["status"]["conditions"] == approved["status"]["conditions"]


async def test_a_certificate_is_immutable(ask, certificate):
    await ask("POST", REQUESTS, signing_request())
    approved = (await decide(ask, APPROVED))["status"]["conditions"]
    other = base64.b64encode(b"nothing").decode()
    answer = await decide(ask, *approved, door="status", certificate=other)
    assert answer.status == 422
    assert answer["message"].endswith(
        'status.certificate: Invalid value: "<certificate data>": must contain at least one '
        "CERTIFICATE PEM block"
    )
    assert (await decide(ask, *approved, door="status", certificate=certificate)).status == 200
    answer = await decide(ask, *approved, door="status", certificate=other)
    assert answer.status == 422
    assert "updates may not modify existing certificate content" in answer["message"]


@pytest.mark.parametrize(
    ("conditions", "certified", "shown"),
    [
        ([], False, "Pending"),
        ([APPROVED], False, "Approved"),
        ([APPROVED], True, "Approved,Issued"),
        ([DENIED], False, "Denied"),
        ([APPROVED, FAILED], False, "Approved,Failed"),
    ],
)
async def test_tables_show_the_condition(ask, certificate, conditions, certified, shown):
    await ask("POST", REQUESTS, signing_request(expirationSeconds=86400))
    decided = [each for each in conditions if each is not FAILED]
    if decided:
        await decide(ask, *decided)
    if FAILED in conditions or certified:
        known = (await ask("GET", EVE))["status"]["conditions"]
        given = {"certificate": certificate} if certified else {}
        failed = [FAILED] * (FAILED in conditions)
        assert (await decide(ask, *known, *failed, door="status", **given)).status == 200
    table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = await ask("GET", EVE, headers=table)
    (row,) = answer["rows"]
    assert [row["cells"][0], *row["cells"][2:]] == [
        "eve",
        CLIENT,
        "kubernetes-admin",
        "24h",
        shown,
    ]
