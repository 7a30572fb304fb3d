"""Errors of ``corral node``."""

import pytest

from corral.cli.main import run

KUBECONFIG = """
current-context: one
contexts: [{name: one, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: secret}}]
"""


@pytest.fixture
def corral_node(tmp_path, capsys):
    """Runs ``corral node``; the words ``FILE`` and ``PROGRAM`` stand for kubeconfigs."""
    files = {"FILE": KUBECONFIG, "PROGRAM": KUBECONFIG.replace("{token: secret}", "{exec: {}}")}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def corral_node(*words):
        words = [str(tmp_path / word) if word in files else word for word in words]
        code = run(["node", "--data-dir", str(tmp_path / "data"), *words])
        return code, " ".join(capsys.readouterr().err.split())

    return corral_node


@pytest.mark.parametrize("words", [(), ("--kubeconfig", "FILE", "--bootstrap-kubeconfig", "FILE")])
def test_exactly_one_kubeconfig_is_required(corral_node, words):
    code, output = corral_node(*words)
    assert code == 1
    assert output == "error: name one of --kubeconfig and --bootstrap-kubeconfig"


@pytest.mark.parametrize("option", ["--kubeconfig", "--bootstrap-kubeconfig"])
def test_credential_plugins_are_rejected(corral_node, option):
    code, output = corral_node(option, "PROGRAM")
    assert code == 1
    assert "PROGRAM" in output
    assert "use a token or a client certificate" in output


def test_the_kubeconfig_of_the_provisioner_is_read_at_the_start(corral_node):
    code, output = corral_node("--kubeconfig", "FILE", "--provisioner-kubeconfig", "PROGRAM")
    assert code == 1
    assert "use a token or a client certificate" in output


def test_a_shared_directory_is_refused_with_the_reason(corral_node):
    code, output = corral_node("--kubeconfig", "FILE", "--shared-storage", "/srv/corral")
    assert code == 1
    assert "no node may read the pods of another" in output
    assert "corral join" in output


def test_an_unreachable_server_is_an_error(corral_node):
    code, output = corral_node("--kubeconfig", "FILE", "--name", "n1")
    assert code == 1
    assert "the API server at https://127.0.0.1:1 does not answer" in output


def test_an_invalid_node_name_is_rejected(corral_node):
    code, output = corral_node("--kubeconfig", "FILE", "--name", "N_1")
    assert code == 1
    assert '"N_1" cannot be a node\'s name' in output
    assert "--name" in output


def test_a_data_directory_with_a_cluster_is_rejected(corral_node, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "store.sqlite").write_text("")
    code, output = corral_node("--kubeconfig", "FILE", "--name", "n1")
    assert code == 1
    assert "holds a cluster of its own (corral up)" in output
