"""``corral start``, ``stop`` and ``restart``: invalid arguments fail before any request."""

import pytest

from corral.cli.main import run


@pytest.fixture
def corral(tmp_path, capsys, monkeypatch):
    """Runs a command on a data directory without a manager; returns exit code and output."""
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def command(*arguments):
        code = run([*arguments, "--data-dir", str(tmp_path)])
        output = capsys.readouterr()
        return code, output.out + output.err

    return command


def test_stop_without_a_name_is_about_the_manager(corral, tmp_path):
    assert corral("stop") == (0, f"No manager runs on {tmp_path}.\n")


@pytest.mark.parametrize(
    "flags", [("--force",), ("--grace-period", "0"), ("--dry-run",), ("--force=true", "--dry-run")]
)
def test_flags_for_a_virtual_machine_do_not_stop_the_manager(corral, flags):
    code, output = corral("stop", *flags)
    assert code == 1
    assert "are about a VirtualMachine: none is named" in output


@pytest.mark.parametrize("command", ["start", "stop", "restart"])
def test_a_virtual_machine_needs_a_kubeconfig(corral, command):
    code, output = corral(command, "testvm")
    assert code == 1
    assert output.startswith("error: there is no kubeconfig ")


@pytest.mark.parametrize("command", ["start", "restart"])
def test_a_name_is_required(corral, command):
    code, output = corral(command)
    assert code == 2
    assert "Missing argument" in output
