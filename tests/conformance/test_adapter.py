"""Custom and external metrics as kubectl sees them, with a Prometheus that comes and goes."""

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from tests.cluster import Outside, outside
from tests.conformance.conftest import kubectl_programs
from tests.conformance.manifests import replica_set

pytestmark = pytest.mark.conformance

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
RULES = """
external:
- metric: jobs_waiting
  query: sum(jobs{$matchers})
"""
WEB = replica_set("web", 2)


class Prometheus(BaseHTTPRequestHandler):
    """Has 40 jobs, and of each object that a query names a figure: its place among them."""

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        (query,) = form["query"]
        if query.startswith("sum(jobs{"):
            found = [({}, 40.0)]
        else:
            _, _, pattern = query.partition(',name=~"')
            names = pattern.partition('"')[0].replace("\\", "").split("|") if pattern else []
            found = [({"name": name}, place) for place, name in enumerate(sorted(names))]
        result = [{"metric": labels, "value": [1767225600, str(value)]} for labels, value in found]
        body = json.dumps(
            {"status": "success", "data": {"resultType": "vector", "result": result}}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing."""


@pytest.fixture(scope="module")
def prometheus() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def watched(prometheus, tmp_path_factory) -> Iterator[Outside]:
    """A manager that asks that Prometheus; with two machines."""
    directory = tmp_path_factory.mktemp("watched")
    rules = directory / "rules.yaml"
    rules.write_text(RULES)
    url = f"http://127.0.0.1:{prometheus.server_address[1]}"
    options = ("--machine", "hollow", "--prometheus", url, "--metric-rules", str(rules))
    with outside(*options, directory=directory) as user:
        user.kubectl("apply", "-f", "-", input=json.dumps(WEB))
        user.kubectl(
            "wait", "vmirs/web", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=120s"
        )
        yield user


@pytest.fixture(params=sorted(kubectl_programs()))
def kubectl(request, watched) -> Outside:
    return replace(watched, kubectl_program=kubectl_programs()[request.param])


def raw(user: Outside, path: str) -> dict:
    return json.loads(user.kubectl("get", "--raw", path))


def test_kubectl_reads_a_metric_of_pods(kubectl):
    values = raw(
        kubectl, f"{CUSTOM}/namespaces/default/pods/*/kubevirt_vmi_busy?labelSelector=app=web"
    )
    pods = {
        pod["metadata"]["annotations"]["kubevirt.io/domain"]: pod["metadata"]["name"]
        for pod in kubectl.items("pods")
    }
    assert values["kind"] == "MetricValueList"
    by_name = {one["describedObject"]["name"]: one["value"] for one in values["items"]}
    assert by_name == {pods[name]: str(place) for place, name in enumerate(sorted(pods))}


def test_kubectl_reads_an_external_metric(kubectl):
    values = raw(kubectl, f"{EXTERNAL}/jobs_waiting?labelSelector=queue=mail")
    assert values["kind"] == "ExternalMetricValueList"
    assert [one["value"] for one in values["items"]] == ["40"]


def test_kubectl_discovers_the_groups_and_metrics_with_rules(kubectl):
    versions = kubectl.kubectl("api-versions").split()
    assert {"custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1"} <= set(versions)
    listed = kubectl.kubectl("api-resources", "--api-group=external.metrics.k8s.io")
    assert "jobs_waiting" in listed
    assert "ExternalMetricValueList" in listed


def test_metrics_without_series_are_not_found(kubectl):
    said = kubectl.kubectl(
        "get", "--raw", f"{CUSTOM}/namespaces/default/pods/nobody/busy", check=False
    )
    message = "the server could not find the metric busy for pods nobody"
    assert said.strip() == f"Error from server (NotFound): {message}"


def test_an_autoscaler_scales_by_a_metric_of_prometheus(watched):
    """In a namespace of its own: other tests count the machines of the first."""
    target = {"apiVersion": "kubevirt.io/v1", "kind": WEB["kind"], "name": "web"}
    metric = {"metric": {"name": "jobs_waiting"}, "target": {"type": "Value", "value": "10"}}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": target,
            "maxReplicas": 3,
            "metrics": [{"type": "External", "external": metric}],
        },
    }
    watched.kubectl("create", "namespace", "scaled")
    for each in (WEB, autoscaler):
        watched.kubectl("apply", "-n", "scaled", "-f", "-", input=json.dumps(each))
    grown = "--for=jsonpath={.spec.replicas}=3"
    watched.kubectl("wait", "vmirs/web", "-n", "scaled", grown, "--timeout=120s")


def test_an_unreachable_prometheus_is_reported(watched, tmp_path):
    with socket.socket() as taken:  # so that nobody else answers there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        options = ("--machine", "hollow", "--prometheus", f"http://127.0.0.1:{port}")
        with outside(*options, directory=tmp_path) as user:
            said = user.kubectl("get", "--raw", f"{EXTERNAL}/jobs", check=False)
    assert said.startswith(
        f"Error from server (ServiceUnavailable): Prometheus at http://127.0.0.1:{port} does not"
    )


def test_invalid_rules_are_rejected_before_the_start(watched, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rule: []")
    options = ["--prometheus", "http://127.0.0.1:9090", "--metric-rules", str(rules)]
    place = ["--machine", "hollow", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        watched.corral_command("up", *place, *options),
        env=watched.corral_environment(), text=True, timeout=60, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode != 0
    assert f"{rules}: Object contains unknown field `rule`" in done.stdout
    assert not (tmp_path / "data" / "store.sqlite").exists()
