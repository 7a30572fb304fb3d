"""Requests that are wrong in form: each gets the answer that the real server gives."""

import contextlib
import http.client
import json
import ssl

import pytest
from tests.conformance.api import KUBEVIRT, MERGE, PATIENCE, refused
from tests.conformance.manifests import config_map, core, replica_set, sets

PROTOBUF = "application/vnd.kubernetes.protobuf"

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize(
    "path",
    [
        "/nosuch",
        "/apis/nosuch.io/v1/things",
        "/apis/kubevirt.io/v7/virtualmachineinstances",
        "/api/v2",
        "/openapi/v3/apis/nosuch.io/v1",
    ],
)
def test_an_unknown_path_is_a_plain_404(api, path):
    answer = api.get(path)
    assert (answer.status_code, answer.text) == (404, "404 page not found\n")
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_missing_subresource_of_a_custom_resource_is_a_status(api):
    answer = api.get(f"{KUBEVIRT}/namespaces/default/virtualmachineinstances/x/nosuch")
    status = refused(answer, 404, "NotFound")
    assert status["message"] == 'virtualmachineinstances.kubevirt.io "x" not found'


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nosuchthings",
        "/api/v1/namespaces/default/nosuchthings/x",
        "/api/v1/namespaces/default/configmaps/x/nosuch",
        "/api/v1/configmaps/x",
        "/apis/apps/v1/namespaces/default/nosuchthings",
    ],
)
def test_an_unknown_path_in_a_native_group_is_a_status(api, path):
    status = refused(api.get(path), 404, "NotFound")
    assert status["message"] == "the server could not find the requested resource"
    assert status["details"] == {}


def test_objects_of_all_namespaces_cannot_be_deleted_at_once(api, namespace):
    api.create(core("configmaps", namespace), config_map("x"))
    refused(api.delete("/api/v1/configmaps"), 405, "MethodNotAllowed")
    assert api.delete(f"{KUBEVIRT}/virtualmachineinstances").status_code == 404
    assert api.get(core("configmaps", namespace, "x")).status_code == 200


def test_a_missing_object(api, namespace):
    status = refused(api.get(sets(namespace, "nosuch")), 404, "NotFound")
    assert status["message"] == ('virtualmachineinstancereplicasets.kubevirt.io "nosuch" not found')
    assert status["details"] == {
        "name": "nosuch",
        "group": "kubevirt.io",
        "kind": "virtualmachineinstancereplicasets",
    }
    status = refused(api.get(core("secrets", namespace, "nosuch")), 404, "NotFound")
    assert status["details"] == {"name": "nosuch", "kind": "secrets"}


@pytest.mark.parametrize(
    "authorization", [None, "Bearer", "Bearer bad", "Basic YTpi", "Bearer " + "x" * 4000]
)
def test_unauthenticated_requests_are_unauthorized(api, authorization):
    request = api.build_request("GET", core("namespaces"))
    del request.headers["Authorization"]
    if authorization:
        request.headers["Authorization"] = authorization
    status = refused(api.send(request), 401, "Unauthorized")
    assert status["message"] == "Unauthorized"
    assert "details" not in status


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_public(api, path):
    request = api.build_request("GET", path)
    del request.headers["Authorization"]
    answer = api.send(request)
    assert (answer.status_code, answer.text) == (200, "ok")
    assert answer.headers["content-type"].startswith("text/plain")


def test_the_version_is_one_that_clients_can_compare(api):
    version = api.get_document("/version")
    assert version["major"].isdigit()
    assert version["minor"].isdigit()
    assert version["gitVersion"].startswith(f"v{version['major']}.{version['minor']}.")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", core("configmaps", "default", "x")),
        ("PUT", core("configmaps", "default")),
        ("PATCH", core("configmaps", "default")),
        ("PURGE", core("configmaps", "default")),
        ("POST", sets("default", "x", "scale")),
        ("DELETE", sets("default", "x", "status")),
    ],
)
def test_an_unsupported_method(api, method, path):
    refused(api.request(method, path, json={}), 405, "MethodNotAllowed")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_updates_need_a_name(api, method):
    answer = api.request(method, sets("default"), json={})
    assert refused(answer, 400, "BadRequest")["message"] == "name must be provided"


@pytest.mark.parametrize(
    "accept",
    [
        "application/xml",
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
    ],
)
def test_an_unsupported_response_media_type(api, accept):
    answer = api.get(core("namespaces"), headers={"Accept": accept})
    status = refused(answer, 406, "NotAcceptable")
    assert status["message"].startswith("only the following media types are accepted: ")


@pytest.mark.parametrize(
    "accept", ["*/*", "application/*", "application/vnd.kubernetes.protobuf,application/json", ""]
)
def test_json_is_the_preferred_response(api, accept):
    answer = api.get(core("namespaces"), headers={"Accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"


def test_protobuf_is_the_response_if_nothing_else_is_accepted(api):
    headers = {"Accept": PROTOBUF}
    answer = api.get(core("namespaces"), headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, PROTOBUF)
    assert answer.content.startswith(b"k8s\0\n\x13\n\x02v1\x12\rNamespaceList")
    answer = api.get(f"{core('namespaces')}/none", headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROTOBUF)
    path = f"{core('namespaces')}?watch=true&timeoutSeconds=1"
    answer = api.get(path, headers=headers)
    assert answer.headers["content-type"] == f"{PROTOBUF};stream=watch"
    frames, rest = 0, answer.content
    while rest:
        size = int.from_bytes(rest[:4])
        assert rest[4:].startswith(b"\n\x05ADDED\x12")
        frames, rest = frames + 1, rest[4 + size :]
    assert frames >= 1


def test_bodies_can_be_yaml(api, namespace):
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\ndata: {a: 'on'}\n"
    headers = {"Content-Type": "application/yaml"}
    answer = api.post(core("configmaps", namespace), content=body, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.json()["data"] == {"a": "on"}


@pytest.mark.parametrize("media", ["text/plain", "application/xml", "multipart/form-data"])
def test_an_unsupported_request_media_type(api, namespace, media):
    body = json.dumps(config_map("x"))
    answer = api.post(core("configmaps", namespace), content=body, headers={"Content-Type": media})
    refused(answer, 415, "UnsupportedMediaType")


@pytest.mark.parametrize("media", ["application/json", "text/plain", ""])
def test_a_patch_needs_its_media_type(api, namespace, media):
    api.create(core("configmaps", namespace), config_map("x"))
    path = core("configmaps", namespace, "x")
    refused(api.patch(path, content="{}", headers={"Content-Type": media}), 415,
            "UnsupportedMediaType")  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"7",
        b"NaN",
        b"{} {}",
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}',
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"\xff"}}',
        b'{"apiVersion":"v1","kind":"ConfigMap"' + b" " * 100 + b',"data":',
        b'{"a":' * 100_000,
        b"[" * 1_000_000,
        b"\x1f\x8b\x08\x00garbage",
    ],
    ids=lambda body: body[:24].decode("latin-1"),
)
def test_a_malformed_body(api, namespace, body):
    headers = {"Content-Type": "application/json"}
    refused(api.post(core("configmaps", namespace), content=body, headers=headers), 400,
            "BadRequest")  # fmt: skip


@pytest.mark.parametrize(
    "body", ["a: [", "a: &a [*a]", "\t", "!!python/object:os.system x", "- 1", "a: b\n---\nc: d"]
)
def test_a_malformed_yaml_body(api, namespace, body):
    headers = {"Content-Type": "application/yaml"}
    refused(api.post(core("configmaps", namespace), content=body, headers=headers), 400,
            "BadRequest")  # fmt: skip


def test_a_yaml_bomb_is_rejected(api, namespace):
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    headers = {"Content-Type": "application/yaml"}
    answer = api.post(core("configmaps", namespace), content="\n".join(lines), headers=headers)
    refused(answer, 400, "BadRequest")


@pytest.mark.parametrize(
    "body",
    [
        b"k8s\0",
        b"k8s\0garbage",
        b"garbage",
        b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xff\xff\xff\xff\x0f",
        b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x04\x0a\xff\xff\x0f",
    ],
)
def test_a_malformed_protobuf_body(api, namespace, body):
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    refused(api.post(core("configmaps", namespace), content=body, headers=headers), 400,
            "BadRequest")  # fmt: skip


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"kind": "Secret"}, "Secret"),
        ({"apiVersion": "v2"}, "v2"),
        ({"metadata": {"name": "x", "namespace": "other"}}, "the namespace of the provided object"),
    ],
)
def test_a_body_of_another_kind(api, namespace, change, part):
    answer = api.post(core("configmaps", namespace), json=config_map("x") | change)
    assert part in refused(answer, 400, "BadRequest")["message"]


def test_the_name_in_the_body_is_that_of_the_path(api, namespace):
    made = api.create(core("configmaps", namespace), config_map("x"))
    answer = api.put(core("configmaps", namespace, "y"), json=made)
    message = refused(answer, 400, "BadRequest")["message"]
    assert message == ("the name of the object (x) does not match the name on the URL (y)")


def test_a_body_may_have_three_mebibytes_and_no_more(api, namespace):
    large = config_map("large", a="a" * 1_000_000) | {"metadata": {"name": "large"}}
    api.create(core("configmaps", namespace), large)
    too_large = json.dumps(config_map("x", a="a" * 3 * 1024 * 1024))
    headers = {"Content-Type": "application/json"}
    answer = api.post(core("configmaps", namespace), content=too_large, headers=headers)
    refused(answer, 413, "RequestEntityTooLarge")
    answer = api.post(
        core("configmaps", namespace), content=iter([too_large.encode()]), headers=headers
    )
    refused(answer, 413, "RequestEntityTooLarge")
    api.get_document(core("configmaps", namespace, "large"))


def test_a_chunked_body_is_accepted(api, namespace):
    body = json.dumps(config_map("pieces")).encode()
    headers = {"Content-Type": "application/json"}
    pieces = (body[index : index + 7] for index in range(0, len(body), 7))
    answer = api.post(core("configmaps", namespace), content=pieces, headers=headers)
    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("query", "code", "reason", "part"),
    [
        ("limit=x", 400, "BadRequest", ""),
        ("limit=-1", 400, "BadRequest", ""),
        ("continue=x", 400, "BadRequest", "continue key is not valid"),
        ("continue=eyJ2IjoiIn0", 400, "BadRequest", "continue key is not valid"),
        ("labelSelector=a%3D(", 400, "BadRequest", ""),
        ("fieldSelector=metadata.name", 400, "BadRequest", ""),
        ("fieldSelector=data.a%3Db", 400, "BadRequest", "field label not supported: data.a"),
        ("resourceVersion=x", 400, None, "x"),
        ("resourceVersionMatch=Exact", 422, "Invalid", "resourceVersionMatch"),
        ("resourceVersion=1&resourceVersionMatch=Some", 422, "Invalid", "resourceVersionMatch"),
        ("watch=true&sendInitialEvents=true", 422, "Invalid", "resourceVersionMatch"),
        ("timeoutSeconds=x", 400, "BadRequest", ""),
    ],
)
def test_invalid_list_options(api, namespace, query, code, reason, part):
    answer = api.get(f"{core('configmaps', namespace)}?{query}")
    assert answer.status_code == code, answer.text
    status = answer.json()
    assert status["kind"] == "Status"
    assert reason in (None, status["reason"])
    assert part in status["message"]


@pytest.mark.parametrize(
    ("query", "field"),
    [("dryRun=Some", "dryRun"), ("fieldValidation=Some", "fieldValidation")],
)
def test_invalid_write_options(api, namespace, query, field):
    answer = api.post(f"{core('configmaps', namespace)}?{query}", json=config_map("x"))
    status = refused(answer, 422, "Invalid")
    assert status["details"]["causes"][0]["field"] == field
    assert "supported values" in status["message"]
    assert 'CreateOptions.meta.k8s.io "" is invalid' in status["message"]


@pytest.mark.parametrize(
    "name", ["UPPER", "under_score", "-x", "x-", "x" * 254, "a b", "a%00b", "%2e%2e", "a%2Fb"]
)
def test_an_invalid_name(api, namespace, name):
    answer = api.get(f"{core('configmaps', namespace)}/{name}")
    assert answer.status_code == 404
    answer = api.post(core("configmaps", namespace), json=config_map(name))
    status = refused(answer, 422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


def test_field_validation_reports_unknown_and_duplicate_fields(api, namespace):
    body = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","nme":"y"},"a":1,"a":2}'
    headers = {"Content-Type": "application/json"}
    path = core("configmaps", namespace)

    def post(validation: str) -> object:
        query = (
            {"fieldValidation": validation, "dryRun": "All"} if validation else {"dryRun": "All"}
        )
        return api.post(path, content=body, headers=headers, params=query)

    status = refused(post("Strict"), 400, "BadRequest")
    assert status["message"].startswith(
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
    )
    for part in ('unknown field "metadata.nme"', 'unknown field "a"'):
        assert part in status["message"]
    for validation in ("Warn", ""):  # which is the default
        answer = post(validation)
        assert answer.status_code == 201
        warnings = answer.headers.get_list("warning")
        assert r'299 - "unknown field \"metadata.nme\""' in warnings
        assert r'299 - "unknown field \"a\""' in warnings
        assert "nme" not in answer.json()["metadata"]
    assert "warning" not in post("Ignore").headers


def test_wrong_types_are_reported_with_their_path(api, namespace):
    document = replica_set("x", 1)
    document["spec"]["replicas"] = "three"
    document["spec"]["template"]["spec"]["domain"]["cpu"] = {"cores": "one"}
    status = refused(api.post(sets(namespace), json=document), 422, "Invalid")
    details = status["details"]
    assert (details["kind"], details["name"]) == ("VirtualMachineInstanceReplicaSet", "x")
    causes = {cause["field"]: cause for cause in details["causes"]}
    assert causes["spec.replicas"] == {
        "reason": "FieldValueTypeInvalid",
        "field": "spec.replicas",
        "message": 'Invalid value: "string": spec.replicas in body must be of type integer: '
        '"string"',
    }
    assert "spec.template.spec.domain.cpu.cores" in causes


def test_wrong_types_of_native_kinds_have_the_message_of_gos_decoder(api, namespace):
    answer = api.post(core("configmaps", namespace), json=config_map("x") | {"data": {"a": 1}})
    status = refused(answer, 400, "BadRequest")
    assert status["message"] == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number '
        "into Go struct field ConfigMap.data of type string"
    )


def test_a_connection_can_be_used_after_an_error(user):
    """One connection, wrong and right requests in turn: nothing of one is left for the next."""
    with contextlib.closing(connected(user)) as connection:
        codes = []
        for body in ("{", "x" * 100_000, json.dumps(config_map())):
            connection.request("POST", core("configmaps", "default"), body, user.one.headers)
            answer = connection.getresponse()
            answer.read()
            codes.append(answer.status)
        assert codes == [400, 400, 201]


def test_a_large_response_is_compressed_if_accepted(api, namespace):
    api.create(core("configmaps", namespace), config_map("large", a="a" * 400_000))
    path = core("configmaps", namespace, "large")
    packed = api.get(path, headers={"Accept-Encoding": "gzip"})
    plain = api.get(path, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()


def test_merge_patches_must_be_objects(api, namespace):
    api.create(core("configmaps", namespace), config_map("x"))
    path = core("configmaps", namespace, "x")
    for patch in ([], "x", 7, None):
        refused(api.send_patch(path, patch, MERGE), 400, "BadRequest")


def connected(user) -> http.client.HTTPSConnection:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(
        "127.0.0.1", user.one.port, context=context, timeout=PATIENCE
    )


def test_expect_100_continue_is_supported(user, namespace):
    """``Expect: 100-continue``, as curl sends it with large bodies."""
    body = json.dumps(config_map("asked", a="a" * 100_000)).encode()
    with contextlib.closing(connected(user)) as connection:
        connection.putrequest("POST", core("configmaps", namespace))
        for name, value in user.one.headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert connection.sock.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.send(body)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()


def test_an_endless_head_is_rejected(user):
    with (
        contextlib.closing(connected(user)) as connection,
        contextlib.suppress(ConnectionError),  # cut before all is sent: refused as well
    ):
        connection.request("GET", "/readyz", headers={"X-Large": "x" * 200_000})
        assert 400 <= connection.getresponse().status < 500
    with contextlib.closing(connected(user)) as connection:
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200


def test_garbage_is_rejected(user):
    for garbage in (b"\x00" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"hello\r\n\r\n"):
        with contextlib.closing(connected(user)) as connection:
            connection.connect()
            connection.sock.sendall(garbage)
            said = connection.sock.recv(1000)
            assert said == b"" or b" 400 " in said.splitlines()[0], said


@pytest.mark.parametrize("path", ["/api/v1/namespaces/default", "/api/v1/namespaces", "/apis"])
def test_responses_are_indented_for_people_only(api, path):
    line = api.get(path, headers={"User-Agent": "kubectl/v1.37.0"})
    assert line.text.endswith("}\n")
    assert "\n" not in line.text[:-1]
    for asked in (
        api.get(path, params={"pretty": "true"}),
        api.get(path, headers={"User-Agent": "curl/8.0"}),
    ):
        assert asked.text == json.dumps(asked.json(), indent=2, ensure_ascii=False)


def test_errors_are_indented_for_people(api):
    answer = api.get("/nosuch", headers={"User-Agent": "curl/8.0", "Authorization": "Bearer no"})
    assert answer.status_code == 401
    assert answer.text.startswith('{\n  "apiVersion": "v1",\n')


def test_a_request_header_that_is_too_large_is_a_431(user):
    with contextlib.closing(connected(user)) as connection:
        connection.request("GET", "/version", headers={"x-large": "x" * 2_000_000})
        answer = connection.getresponse()
        assert (answer.status, answer.reason) == (431, "Request Header Fields Too Large")
        assert answer.read() == b"431 Request Header Fields Too Large"
