"""What ``corral node`` says to those who start it wrongly."""

import pytest

from corral.cli.main import run

KUBECONFIG = """
current-context: one
contexts: [{name: one, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: secret}}]
"""


@pytest.fixture
def told(tmp_path, capsys):
    """Return what the command says, with the words ``FILE`` and ``PROGRAM`` for kubeconfigs."""
    files = {"FILE": KUBECONFIG, "PROGRAM": KUBECONFIG.replace("{token: secret}", "{exec: {}}")}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def told(*words):
        words = [str(tmp_path / word) if word in files else word for word in words]
        code = run(["node", "--data-dir", str(tmp_path / "data"), *words])
        return code, " ".join(capsys.readouterr().err.split())

    return told


@pytest.mark.parametrize("words", [(), ("--kubeconfig", "FILE", "--bootstrap-kubeconfig", "FILE")])
def test_one_kubeconfig_is_named(told, words):
    code, said = told(*words)
    assert code == 1
    assert said == "error: name one of --kubeconfig and --bootstrap-kubeconfig"


@pytest.mark.parametrize("option", ["--kubeconfig", "--bootstrap-kubeconfig"])
def test_programs_that_make_credentials_are_not_run(told, option):
    code, said = told(option, "PROGRAM")
    assert code == 1
    assert "PROGRAM" in said
    assert "use a token or a client certificate" in said


def test_the_kubeconfig_of_the_provisioner_is_read_at_the_start(told):
    code, said = told("--kubeconfig", "FILE", "--provisioner-kubeconfig", "PROGRAM")
    assert code == 1
    assert "use a token or a client certificate" in said


def test_a_server_that_is_not_there_is_said(told):
    code, said = told("--kubeconfig", "FILE", "--name", "n1")
    assert code == 1
    assert "the API server at https://127.0.0.1:1 does not answer" in said


def test_a_name_that_no_node_can_have_is_refused(told):
    code, said = told("--kubeconfig", "FILE", "--name", "N_1")
    assert code == 1
    assert '"N_1" cannot be a node\'s name' in said
    assert "--name" in said


def test_a_directory_with_a_cluster_is_left_alone(told, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "store.sqlite").write_text("")
    code, said = told("--kubeconfig", "FILE", "--name", "n1")
    assert code == 1
    assert "holds a cluster of its own (corral up)" in said
