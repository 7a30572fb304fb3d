"""``corral migrate`` and ``migrate-cancel``: names, labels, and what is said about machines."""

from contextlib import asynccontextmanager

import pytest

from corral.api.errors import NotFound
from corral.cli.errors import Problem
from corral.cli.main import run
from corral.cli.session import Session
from corral.cli.virtctl.migration import _labels, _targets


@pytest.mark.parametrize(
    ("words", "kinds"),
    [(["a"], ["vm", "vmi"]), (["vm", "a"], ["vm"]), (["vmi", "a"], ["vmi"]), (["vmi/a"], ["vmi"])],
)
def test_a_bare_name_is_a_vm_or_else_a_vmi(words, kinds):
    found = _targets(words, "default")
    assert [each.kind for each in found] == kinds
    assert {(each.name, each.namespace) for each in found} == {("a", "default")}


@pytest.mark.parametrize("words", [["pod", "a"], ["a", "b", "c"], ["vm/"]])
def test_other_names_are_refused(words):
    with pytest.raises(Problem):
        _targets(words, "default")


def test_labels_are_read():
    assert _labels("") == {}
    assert _labels("zone=a,disk=") == {"zone": "a", "disk": ""}


@pytest.mark.parametrize("text", ["zone", "=a", "zone=a,b"])
def test_labels_without_a_value_are_refused(text):
    with pytest.raises(Problem, match="is not a list of labels"):
        _labels(text)


class Api:
    """Has some VMs and VMIs; a VM of the same name as a VMI runs."""

    def __init__(self, vms=(), vmis=()):
        self.there = [*(f"virtualmachines/{each}" for each in vms)]
        self.there += [f"virtualmachineinstances/{each}" for each in vmis]
        self.vmis = vmis

    async def request(self, method, path, **_options):
        name = path.rstrip("/").split("/")[-1 if method == "GET" else -2]
        if method == "GET" and not path.endswith(tuple(self.there)):
            raise NotFound(f"{path} not found")
        if method == "PUT" and name not in self.vmis:
            raise NotFound(f'virtualmachineinstances.kubevirt.io "{name}" not found')


@pytest.fixture
def migrate(monkeypatch, capsys, nobody_home):
    """Runs ``corral migrate`` at an API; returns exit code and output."""

    def command(api, *words):
        @asynccontextmanager
        async def client(_session):
            yield api

        monkeypatch.setattr(Session, "client", client)
        code = run(["migrate", *words])
        output = capsys.readouterr()
        return code, output.out + output.err

    return command


@pytest.mark.parametrize(
    ("words", "kind"), [(("a",), "VM"), (("vm", "a"), "VM"), (("vmi", "a"), "VMI"), (("b",), "VMI")]
)
def test_what_migrates_is_named_by_its_kind(migrate, words, kind):
    api = Api(vms=["a"], vmis=["a", "b"])
    assert migrate(api, *words) == (0, f"{kind} {words[-1]} was scheduled to migrate\n")


def test_a_vm_that_does_not_run_can_be_started(migrate):
    code, output = migrate(Api(vms=["a"]), "a")
    assert code == 1
    assert "VM a does not run" in output
    assert "corral start a -n home" in output


def test_a_name_of_nothing_is_not_found(migrate):
    code, output = migrate(Api(), "a")
    assert code == 1
    assert "virtualmachineinstances/a not found" in output
