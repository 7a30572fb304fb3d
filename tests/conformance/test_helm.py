"""Helm 4, by its own Go library: a chart of machines from its installation to its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helm_python import Config, HelmError

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.client("helm-python-sdk", shown="Helm 4 (helm-python-sdk)"),
]

CHART = {
    "Chart.yaml": """\
apiVersion: v2
name: runners
version: 0.1.0
""",
    "values.yaml": """\
replicas: 1
memory: 64M
""",
    "templates/set.yaml": """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceReplicaSet
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        devices:
          disks: [{name: disk, disk: {bus: virtio}}]
        resources: {requests: {memory: {{ .Values.memory }}}}
      volumes:
        - name: disk
          containerDisk: {image: "kubevirt/cirros-container-disk-demo:latest"}
""",
    "templates/service.yaml": """\
apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}-ssh
spec:
  selector: {app: {{ .Release.Name }}}
  ports: [{port: 22}]
""",
    "templates/config.yaml": """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data: {replicas: {{ .Values.replicas | quote }}}
""",
}


@pytest.fixture
def chart(tmp_path) -> Path:
    for name, text in CHART.items():
        path = tmp_path / "runners" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "runners"


@pytest.fixture
def helm(user, namespace) -> Iterator[Config]:
    kubeconfig = user.one.directory / "kubeconfig"
    with Config(kubeconfig_path=kubeconfig, namespace=namespace) as config:
        yield config


def replicas(user, namespace: str) -> list[int]:
    return [each["spec"]["replicas"] for each in user.items("vmirs", "-n", namespace)]


@pytest.mark.does("connect")
def test_it_reaches_the_server(helm):
    helm.check_reachable()


@pytest.mark.does("life")
def test_a_release_is_installed_upgraded_and_uninstalled(helm, chart, user, namespace):
    installed = helm.install(chart, "ci", {"replicas": 2}, wait="watcher", timeout=120)
    assert installed["status"] == "deployed"
    assert replicas(user, namespace) == [2]
    helm.upgrade(chart, "ci", {"replicas": 1, "memory": "96M"})
    assert replicas(user, namespace) == [1]
    helm.rollback("ci", version=1)
    assert replicas(user, namespace) == [2]
    assert [each["status"] for each in helm.history("ci")][-1] == "deployed"
    assert [each["name"] for each in helm.list()] == ["ci"]
    helm.uninstall("ci", wait="watcher", timeout=120)
    assert replicas(user, namespace) == []
    assert helm.list() == []


@pytest.mark.does("apply")
def test_changes_by_others_are_a_conflict(helm, chart, user, namespace):
    helm.install(chart, "ci")
    patch = '{"spec":{"replicas":3}}'
    user.kubectl("patch", "vmirs", "ci", "-n", namespace, "--type=merge", "-p", patch)
    with pytest.raises(HelmError, match="conflict"):
        helm.upgrade(chart, "ci", {"replicas": 2})
    assert replicas(user, namespace) == [3]


@pytest.mark.does("errors")
def test_errors_of_the_server_are_shown(helm, chart, user, namespace):
    with pytest.raises(HelmError, match=r"spec\.replicas"):
        helm.install(chart, "ci", {"replicas": -1})
    assert replicas(user, namespace) == []
