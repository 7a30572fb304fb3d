import json

import pytest
import trustme
from starlette.responses import PlainTextResponse

from corral.api.request import Certificate, Request
from corral.server.extension.aggregated_api import AggregatedApi
from corral.server.extension.front_proxy import FrontProxy
from corral.server.node_proxy.forwarding import Forward

ROOT = "/apis/subresources.kubevirt.io/v1"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
CA = trustme.CA().cert_pem.bytes().decode()
PROXIES = FrontProxy(authority=CA, user=("x-remote-user",), group=("x-remote-group",))
PROXY = Certificate(
    name="front-proxy-client",
    begins=0,
    ends=1e12,
    fingerprint="",
    authorities=tuple(PROXIES.authorities),
)
NODE = PlainTextResponse("the node's")
STATUS = {"content-type": "application/merge-patch+json"}


class Proxied:
    """Asks as kube-apiserver does in a user's name."""

    def __init__(self, api):
        self.api = api

    async def __call__(self, method, path, body=None, *, user="admin", groups="", **headers):
        named = {"x-remote-user": user, "x-remote-group": groups or "system:masters", **headers}
        request = Request(method=method, path=path, headers=named, certificate=PROXY)

        async def read():
            return b"" if body is None else json.dumps(body).encode()

        return await self.api.handle(request, read)


@pytest.fixture
def api(client):
    return AggregatedApi(client, {"n1": NODE}.get, lambda: PROXIES)


@pytest.fixture
def proxied(api):
    return Proxied(api)


@pytest.fixture
async def vm(ask, machine):
    document = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "db"},
        "spec": {
            "runStrategy": "Halted",
            "template": {"metadata": {}, "spec": machine["spec"]},
        },
    }
    answer = await ask("POST", VMS, document)
    assert answer.status == 201, answer.text
    return answer.document


def message(response):
    return json.loads(response.body)["message"]


async def test_start_changes_the_run_strategy(ask, proxied, vm):
    path = f"{ROOT}/namespaces/default/virtualmachines/db"
    assert (await proxied("PUT", f"{path}/start", {})).status == 202
    assert (await ask("GET", f"{VMS}/db"))["spec"]["runStrategy"] == "Always"
    refused = await proxied("PUT", f"{path}/start", {})
    assert refused.status == 409
    assert "Always does not support manual start requests" in message(refused)


async def test_a_dry_run_changes_nothing(ask, proxied, vm):
    path = f"{ROOT}/namespaces/default/virtualmachines/db/start"
    assert (await proxied("PUT", path, {"dryRun": ["All"]})).status == 202
    assert (await ask("GET", f"{VMS}/db"))["spec"]["runStrategy"] == "Halted"


async def test_requests_of_a_status_go_to_the_subresource(ask, proxied, vm):
    path = f"{ROOT}/namespaces/default/virtualmachines/db/start"
    assert (await proxied("PUT", path, {"paused": True})).status == 202
    stored = await ask("GET", f"{VMS}/db")
    assert stored["status"]["stateChangeRequests"] == [
        {"action": "Start", "data": {"paused": "true"}}
    ]
    assert stored["spec"]["runStrategy"] == "Halted"


async def test_rights_are_those_of_the_user_whom_the_proxy_names(proxied, policy, vm):
    path = f"{ROOT}/namespaces/default/virtualmachines/db/start"
    refused = await proxied("PUT", path, {}, user="jane", groups="system:authenticated")
    assert refused.status == 403
    assert 'User "jane" cannot update resource "virtualmachines/start"' in message(refused)


async def test_without_the_proxys_certificate_nobody_is_known(api, vm):
    path = f"{ROOT}/namespaces/default/virtualmachines/db/start"
    headers = {"x-remote-user": "admin", "x-remote-group": "system:masters"}
    response = await api.handle(Request(method="PUT", path=path, headers=headers))
    assert response.status == 401


async def test_a_vmi_is_forwarded_to_its_node(ask, proxied, machine):
    await ask("POST", MACHINES, machine)
    name = machine["metadata"]["name"]
    path = f"{ROOT}/namespaces/default/virtualmachineinstances/{name}/pause"
    refused = await proxied("PUT", path, {})
    assert (refused.status, message(refused).endswith("VMI is not running")) == (409, True)
    kubelet = ask.as_user("system:node:n1", "system:masters")
    status = {"status": {"phase": "Running", "nodeName": "n1"}}
    await kubelet("PATCH", f"{MACHINES}/{name}", status, STATUS)
    response = await proxied("PUT", path, {})
    assert isinstance(response, Forward)
    assert response.app is NODE
    uid = (await ask("GET", f"{MACHINES}/{name}")).metadata["uid"]
    assert response.path == f"/pause/default/{name}/{uid}"


async def test_a_missing_object_is_not_found_in_kubevirts_words(proxied):
    path = f"{ROOT}/namespaces/default/virtualmachineinstances/none/pause"
    response = await proxied("PUT", path, {})
    assert response.status == 404
    assert message(response) == 'virtualmachineinstance.kubevirt.io "none" not found'


async def test_discovery_has_this_group_only(proxied):
    document = json.loads((await proxied("GET", ROOT)).body)
    assert document["groupVersion"] == "subresources.kubevirt.io/v1"
    names = [each["name"] for each in document["resources"]]
    assert {"virtualmachines/start", "virtualmachineinstances/console"} <= set(names)
    groups = json.loads((await proxied("GET", "/apis")).body)["groups"]
    assert [each["name"] for each in groups] == ["subresources.kubevirt.io"]


@pytest.mark.parametrize(
    "path", ["/apis/apps/v1/namespaces/default/deployments/a/scale", "/api/v1/pods", "/openapi/v3"]
)
async def test_other_paths_are_not_found(proxied, path):
    assert (await proxied("GET", path)).status == 404


async def test_the_version_is_kubevirts(proxied):
    assert json.loads((await proxied("GET", f"{ROOT}/version")).body)["gitVersion"].startswith("v1")


async def test_expand_spec_reads_what_it_refers_to(ask, proxied, vm):
    response = await proxied("GET", f"{ROOT}/namespaces/default/virtualmachines/db/expand-spec")
    assert json.loads(response.body)["metadata"]["name"] == "db"


async def test_each_line_of_a_header_of_the_front_proxy_is_a_group(client):
    proxies = FrontProxy(authority=CA, user=("x-user",), group=("x-group",), extra=("x-more-",))
    seen = []

    class Seeing(FrontProxy):
        def authenticate(self, request):
            seen.append(super().authenticate(request))
            return seen[-1]

    api = AggregatedApi(client, {}.get, lambda: Seeing(**vars(proxies)))
    lines = [("x-user", "jane"), ("x-group", "a,b"), ("x-group", "c"), ("x-more-k", "1"),
             ("x-more-k", "2"), ("accept", "application/json"), ("accept", "*/*")]  # fmt: skip
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": ROOT,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in lines],
        "state": {"certificate": PROXY},
    }
    await api(scope, None, send)
    assert sent[0]["status"] == 200
    (user,) = seen
    assert (user.name, user.groups, user.extra) == ("jane", ("a,b", "c"), {"k": ("1", "2")})
