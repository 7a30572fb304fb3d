import base64
import ssl

import pytest
import trustme

from corral import __version__
from corral.client.kubeconfig import TOKEN_SECONDS, KubeconfigError, TokenFile, load

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

ORDINARY = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- name: one
  context: {cluster: here, user: me, namespace: lab}
- name: two
  context: {cluster: here, user: other}
clusters:
- name: here
  cluster:
    server: https://127.0.0.1:6443/
    certificate-authority-data: AUTHORITY
users:
- name: me
  user: {token: secret}
- name: other
  user: {client-certificate: crt.pem, client-key: key.pem}
- name: program
  user: {exec: {command: "rm"}}
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "kubeconfig"
        path.write_text(text.replace("AUTHORITY", base64.b64encode(PEM.encode()).decode()))
        return path

    return write


def test_the_current_context_has_server_and_user(write):
    found = load(write(ORDINARY))
    assert found.server == "https://127.0.0.1:6443"
    assert found.namespace == "lab"
    assert found.headers == {
        "authorization": "Bearer secret",
        "user-agent": f"corral/{__version__}",
    }
    assert found.authority == PEM
    assert "secret" not in repr(found)


def test_requests_are_made_as_another_user(write):
    path = write(ORDINARY.replace("{token: secret}", "{token: secret, as: me, as-groups: [us]}"))
    headers = load(path).headers
    assert headers["authorization"] == "Bearer secret"
    assert headers["impersonate-user"] == "me"
    assert headers["impersonate-group"] == "us"


def test_more_than_one_group_is_rejected(write):
    path = write(ORDINARY.replace("{token: secret}", "{token: secret, as-groups: [a, b]}"))
    with pytest.raises(KubeconfigError, match='"as-groups" must be a list of one group'):
        load(path)


def test_relative_paths_are_relative_to_the_kubeconfig(write, tmp_path):
    (tmp_path / "crt.pem").write_text("crt")
    (tmp_path / "key.pem").write_text("key")
    found = load(write(ORDINARY), "two")
    assert (found.certificate, found.key, found.namespace) == ("crt", "key", "default")
    assert "authorization" not in found.headers


def test_token_file_takes_precedence_over_token(write, tmp_path):
    (tmp_path / "token").write_text("fresh\n")
    path = write(ORDINARY.replace("{token: secret}", "{token: secret, tokenFile: token}"))
    assert load(path).headers["authorization"] == "Bearer fresh"


def test_the_token_of_a_file_is_read_again(tmp_path):
    path, now = tmp_path / "token", [0.0]
    file = TokenFile(path, "first", now=lambda: now[0])
    path.write_text("second\n")
    now[0] = TOKEN_SECONDS - 1
    assert file.token() == "first"
    now[0] = TOKEN_SECONDS
    assert file.token() == "second"
    for damage in (lambda: path.write_text(""), path.unlink):
        damage()
        now[0] += TOKEN_SECONDS
        assert file.token() == "second"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("current-context: one", "current-context: none"), 'contexts has no entry named "none"'),
        (("user: me", "user: nobody"), 'users has no entry named "nobody"'),
        (("user: me", "user: program"), "use a token or a client certificate"),
        (("AUTHORITY", "'***'"), "not PEM in base64"),
        (("https://127.0.0.1:6443/", ""), "server"),
        (("{token: secret}", "{token: 5}"), '"token" must be text'),
        (("{token: secret}", "{tokenFile: missing}"), "tokenFile"),
        (("contexts:", "contexts: ["), "cannot be read"),
    ],
)
def test_errors_name_the_file_and_the_field(write, change, words):
    path = write(ORDINARY.replace(*change))
    with pytest.raises(KubeconfigError) as caught:
        load(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(KubeconfigError, match="/nowhere cannot be read: No such file") as caught:
        load(tmp_path / "nowhere")
    assert str(caught.value).count("nowhere") == 1


def test_client_certificate_and_ca_are_used(write, tmp_path):
    authority = trustme.CA()
    mine = authority.issue_cert("me")
    (tmp_path / "crt.pem").write_bytes(mine.cert_chain_pems[0].bytes())
    (tmp_path / "key.pem").write_bytes(mine.private_key_pem.bytes())
    text = ORDINARY.replace("AUTHORITY", base64.b64encode(authority.cert_pem.bytes()).decode())
    context = load(write(text), "two").tls()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1
