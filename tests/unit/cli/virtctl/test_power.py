"""``corral start``, ``stop`` and ``restart``: what is wrong is told before anybody is asked."""

import pytest

from corral.cli.main import run


@pytest.fixture
def corral(tmp_path, capsys, monkeypatch):
    """Runs a command on a data directory without a manager; answers exit code and what it said."""
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def command(*arguments):
        code = run([*arguments, "--data-dir", str(tmp_path)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return command


def test_stop_without_a_name_is_about_the_manager(corral, tmp_path):
    assert corral("stop") == (0, f"No manager runs on {tmp_path}.\n")


@pytest.mark.parametrize(
    "flags", [("--force",), ("--grace-period", "0"), ("--dry-run",), ("--force=true", "--dry-run")]
)
def test_flags_for_a_virtual_machine_do_not_stop_the_manager(corral, flags):
    code, said = corral("stop", *flags)
    assert code == 1
    assert "are about a VirtualMachine: none is named" in said


@pytest.mark.parametrize("command", ["start", "stop", "restart"])
def test_a_virtual_machine_is_in_a_cluster(corral, command):
    code, said = corral(command, "testvm")
    assert code == 1
    assert said.startswith("error: there is no kubeconfig ")


@pytest.mark.parametrize("command", ["start", "restart"])
def test_a_virtual_machine_is_named(corral, command):
    code, said = corral(command)
    assert code == 2
    assert "Missing argument" in said
