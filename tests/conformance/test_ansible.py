"""Ansible, by its collections kubernetes.core and kubevirt.core: unmodified, on a live server.

What it does is written as its users write it: the playbooks of ``ansible``, a test each, which
assert what their tasks answered.
"""

import json
import sys
from pathlib import Path

import pytest
import yaml
from tests.cluster import EXAMPLES, PATIENCE, run
from tests.conformance.manifests import machine, replica_set

PROGRAM = str(Path(sys.executable).with_name("ansible-playbook"))
PLAYBOOKS = {
    "cluster": ("connect", "discovery"),
    "objects": ("typed",),
    "sets": ("custom", "patch"),
    "apply": ("apply",),
    "lab": ("crd",),
    "logs-and-exec": ("logs", "exec"),
    "refusals": ("errors",),
    "machines": ("life",),
    "node": ("life",),
}
"""By playbook, the words of ``tests/client_table.py`` that it is about."""
PERIODIC = {"objects", "sets", "lab", "logs-and-exec", "node"}
"""Those by whose tasks the server is asked as by test_kubernetes.py, whose library Ansible uses:
each task starts a Python that imports it, in two seconds of a processor."""

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("ansible", shown="Ansible"),
]


def _periodic(playbook: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.periodic] if playbook in PERIODIC else []


@pytest.mark.parametrize(
    "playbook",
    [
        pytest.param(name, marks=[*map(pytest.mark.does, deeds), *_periodic(name)])
        for name, deeds in PLAYBOOKS.items()
    ],
)
def test_a_playbook_runs_to_its_end(user, namespace, tmp_path, playbook):
    known = {
        "namespace": namespace,
        "patience": int(PATIENCE),
        "machine": machine("one"),
        "set": replica_set("web", replicas=2),
        "pool": yaml.safe_load((EXAMPLES / "vm-pool-cirros.yaml").read_text()),
    }
    plugin = {"plugin": "kubevirt.core.kubevirt", "namespaces": [namespace], "create_groups": True}
    inventory = tmp_path / "machines.kubevirt.yaml"
    inventory.write_text(json.dumps(plugin))
    path = Path(__file__).parent / "ansible" / f"{playbook}.yaml"
    command = [PROGRAM, str(path), "-i", str(inventory), "-e", json.dumps(known)]
    environment = user.one.environment()
    environment |= {
        "K8S_AUTH_KUBECONFIG": environment["KUBECONFIG"],
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "ANSIBLE_REMOTE_TMP": str(tmp_path / "modules"),
        "ANSIBLE_PIPELINING": "true",
        "LC_ALL": "C.UTF-8",
    }
    run(command, environment, check=True, input=None)
