import pytest

from corral.api import yaml
from corral.cli.main import run


def test_print_writes_manifests_that_kubectl_reads(capsys):
    assert run(["install", "--print", "--namespace", "x", "--image", "example.com/c:1"]) == 0
    documents = list(yaml.load_all(capsys.readouterr().out))
    assert documents[0]["metadata"]["name"] == "x"
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "example.com/c:1"


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_kubeconfig_is_required(command, capsys):
    assert run([command]) == 1
    output = capsys.readouterr().err
    assert "no cluster is named" in output
    assert "--kubeconfig" in output


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_an_unreachable_cluster_is_an_error(command, capsys, nobody_home):
    assert run([command, "--kubeconfig", str(nobody_home)]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_a_file_that_is_no_kubeconfig_is_named(capsys, tmp_path):
    file = tmp_path / "admin.conf"
    file.write_text("[]")
    assert run(["install", "--kubeconfig", str(file)]) == 1
    assert f"{file} cannot be read as a kubeconfig" in capsys.readouterr().err
