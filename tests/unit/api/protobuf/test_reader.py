import base64
import json
import struct

import pytest
from hypothesis import given, settings, strategies as st

from corral.api.encoding import DEEPEST, MAX_VALUES
from corral.api.errors import BadRequest, TooLarge
from corral.api.protobuf import decode
from corral.api.protobuf.messages import all_kinds

MAGIC = b"k8s\0"

SCALED = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstanceReplicaSet",
    "name": "lab05-cirros-replicaset",
}

# What kubectl 1.37 sent.
SENT = [
    (
        (
            "6b3873000a0f0a02763112094e616d657370616365121b0a130a0372656312001a0022002a00320038004200"
            "12001a020a001a002200"
        ),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rec"}},
    ),
    (
        (
            "6b3873000a0f0a0276311209436f6e6669674d617012270a110a016312001a0022002a0032003800420012060a"
            "01611201621a0a0a0362696e1203ff00011a002200"
        ),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c"},
            "data": {"a": "b"},
            "binaryData": {"bin": "/wAB"},
        },
    ),
    (
        (
            "6b3873000a0c0a027631120653656372657412210a110a017312001a0022002a0032003800420012070a017012"
            "0270771a03782f791a002200"
        ),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "data": {"p": "cHc="},
            "type": "x/y",
        },
    ),
    (
        (
            "6b3873000a0d0a027631120753657276696365126e0a210a04646f6f7212001a0022002a003200380042005a0b"
            "0a036170701204646f6f7212450a1e0a0638302d776562120354435018502209080110001a0377656228abeb01"
            "120b0a036170701204646f6f721a0022084e6f6465506f72743a00420052005a00600068001a020a001a002200"
        ),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "door", "labels": {"app": "door"}},
            "spec": {
                "ports": [
                    {
                        "name": "80-web",
                        "protocol": "TCP",
                        "port": 80,
                        "targetPort": "web",
                        "nodePort": 30123,
                    }
                ],
                "selector": {"app": "door"},
                "type": "NodePort",
            },
            "status": {"loadBalancer": {}},
        },
    ),
    (
        (
            "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e526571756573"
            "74122e0a100a0012001a0022002a0032003800420012141a0f0a03506f64120276311a017022017520901c1a04"
            "0a0012001a002200"
        ),
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": {
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"},
                "expirationSeconds": 3600,
            },
        },
    ),
    (
        (
            "6b3873000a200a09706f6c6963792f76311213506f6444697372757074696f6e42756467657412390a130a0377"
            "656212001a0022002a0032003800420012160a06080010001a00120c0a0a0a0361707012037765621a0a080018"
            "002000280030001a002200"
        ),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "disruptionsAllowed": 0,
                "currentHealthy": 0,
                "desiredHealthy": 0,
                "expectedPods": 0,
            },
        },
    ),
    (
        (
            "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a65637441"
            "636365737352657669657712420a100a0012001a0022002a0032003800420012240a220a0764656661756c7412"
            "066372656174651a0022002a04706f647332003a036c6f671a08080012001a0020001a002200"
        ),
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {
                "resourceAttributes": {
                    "namespace": "default",
                    "verb": "create",
                    "resource": "pods",
                    "name": "log",
                }
            },
        },
    ),
    (  # kubectl 1.32 autoscale
        (
            "6b3873000a290a0e6175746f7363616c696e672f76311217486f72697a6f6e74616c506f644175746f736361"
            "6c657212700a130a0363617012001a0022002a0032003800420012530a4b0a205669727475616c4d61636869"
            "6e65496e7374616e63655265706c69636153657412176c616230352d636972726f732d7265706c6963617365"
            "741a0e6b756265766972742e696f2f763110011804203c1a04180020001a002200"
        ),
        {
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "cap"},
            "spec": {
                "scaleTargetRef": SCALED,
                "minReplicas": 1,
                "maxReplicas": 4,
                "targetCPUUtilizationPercentage": 60,
            },
            "status": {"currentReplicas": 0, "desiredReplicas": 0},
        },
    ),
    (  # kubectl 1.37 autoscale
        (
            "6b3873000a290a0e6175746f7363616c696e672f76321217486f72697a6f6e74616c506f644175746f736361"
            "6c65721292010a130a0363617012001a0022002a0032003800420012750a4b0a205669727475616c4d616368"
            "696e65496e7374616e63655265706c69636153657412176c616230352d636972726f732d7265706c69636173"
            "65741a0e6b756265766972742e696f2f76311001180422220a085265736f7572636522160a03637075120f0a"
            "0b5574696c697a6174696f6e203c1a04180020001a002200"
        ),
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "cap"},
            "spec": {
                "scaleTargetRef": SCALED,
                "minReplicas": 1,
                "maxReplicas": 4,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 60},
                        },
                    }
                ],
            },
            "status": {"desiredReplicas": 0},
        },
    ),
]


def number(value):
    value &= 2**64 - 1
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def message(*fields):
    """Encodes (number, value) pairs: ints as varints, text and bytes with their length."""
    data = b""
    for key, value in fields:
        if isinstance(value, int):
            data += number(key << 3) + number(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            data += number(key << 3 | 2) + number(len(raw)) + raw
    return data


def body(api_version, kind, raw, *rest):
    return MAGIC + message((1, message((1, api_version), (2, kind))), (2, raw), *rest)


@pytest.mark.parametrize(("sent", "document"), SENT)
def test_a_body_of_kubectl_is_decoded(sent, document):
    read = decode(bytes.fromhex(sent))
    assert {key: read[key] for key in document} == document
    assert set(read) - set(document) <= {"spec", "status"}


def test_a_pod_is_decoded():
    container = message(
        (1, "c"),
        (2, "image"),
        (3, "sh"),
        (3, "-c"),
        (6, message((1, ""), (2, 0), (3, 80))),
        (7, message((1, "A"), (2, ""))),
        (
            7,
            message(
                (1, "B"),
                (3, message((4, message((1, message((1, "secret"))), (2, "key"), (3, 0))))),
            ),
        ),
        (8, message((1, message((1, "cpu"), (2, message((1, "500m"))))))),
        (
            11,
            message(
                (1, message((2, message((1, "/"), (2, message((1, 0), (2, 80), (3, ""))))))), (2, 5)
            ),
        ),
        (12, message((2, message((2, message((2, message((1, 1), (2, 0), (3, "web"))))))))),
        (15, message((4, 0), (5, 0))),
        (16, 0),
        (18, 1),
    )
    spec = message(
        (1, message((1, "v"), (2, message((2, message((1, ""), (2, message((1, "1Gi"))))))))),
        (2, container),
        (4, 0),
        (7, message((1, "zone"), (2, "a"))),
        (10, ""),
        (11, 0),
        (14, message((4, number(7) + number(8)))),
        (21, 0),
        (22, message((1, "k"), (5, -1))),
    )
    meta = message(
        (1, "p"),
        (8, b""),
        (9, message((1, 1_700_000_000), (2, 5))),
        (10, 0),
        (13, message((1, "K"), (3, "o"), (4, "u"), (5, "v1"), (6, 1), (7, 0))),
        (17, message((1, "me"), (7, message((1, '{"f:spec":{}}'))))),
    )
    assert decode(body("v1", "Pod", message((1, meta), (2, spec)))) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "deletionTimestamp": "2023-11-14T22:13:20Z",
            "deletionGracePeriodSeconds": 0,
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "K",
                    "name": "o",
                    "uid": "u",
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
            "managedFields": [{"manager": "me", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
            "containers": [
                {
                    "name": "c",
                    "image": "image",
                    "command": ["sh", "-c"],
                    "ports": [{"containerPort": 80}],
                    "env": [
                        {"name": "A"},
                        {
                            "name": "B",
                            "valueFrom": {
                                "secretKeyRef": {"name": "secret", "key": "key", "optional": False}
                            },
                        },
                    ],
                    "resources": {"limits": {"cpu": "500m"}},
                    "readinessProbe": {
                        "httpGet": {"path": "/", "port": 80},
                        "initialDelaySeconds": 5,
                    },
                    "lifecycle": {"preStop": {"httpGet": {"port": "web"}}},
                    "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
                    "tty": True,
                }
            ],
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"zone": "a"},
            "securityContext": {"supplementalGroups": [7, 8]},
            "automountServiceAccountToken": False,
            "tolerations": [{"key": "k", "tolerationSeconds": -1}],
        },
    }


def test_a_map_of_string_lists_is_decoded():
    """Whom a question about rights is about may bear more than groups: extra."""
    values = message((1, b"JTI=1"), (1, b"JTI=2"))
    spec = message((3, b"bob"), (4, b"devs"), (5, message((1, b"id"), (2, values))), (6, b"7"))
    sent = body("authorization.k8s.io/v1", "SubjectAccessReview", message((2, spec)))
    assert decode(sent)["spec"] == {
        "user": "bob",
        "groups": ["devs"],
        "extra": {"id": ["JTI=1", "JTI=2"]},
        "uid": "7",
    }


def test_a_role_and_a_binding_are_decoded():
    rule = message((1, b"get"), (1, b"list"), (2, b""), (3, b"pods"), (4, b"web"))
    sent = body("rbac.authorization.k8s.io/v1", "Role", message((2, rule)))
    assert decode(sent)["rules"] == [
        {
            "verbs": ["get", "list"],
            "apiGroups": [""],
            "resources": ["pods"],
            "resourceNames": ["web"],
        }
    ]
    group = b"rbac.authorization.k8s.io"
    subject = message((1, b"User"), (2, group), (3, b"bob"), (4, b""))
    reference = message((1, group), (2, b"Role"), (3, b"reader"))
    raw = message((2, subject), (3, reference))
    binding = decode(body("rbac.authorization.k8s.io/v1", "RoleBinding", raw))
    assert binding["roleRef"] == {"apiGroup": group.decode(), "kind": "Role", "name": "reader"}
    assert binding["subjects"] == [{"kind": "User", "apiGroup": group.decode(), "name": "bob"}]


def test_micro_times_and_delete_options():
    lease = message(
        (2, message((1, "me"), (2, 15), (4, message((1, 1_700_000_000), (2, 1_234_000)))))
    )
    assert decode(body("coordination.k8s.io/v1", "Lease", lease))["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2023-11-14T22:13:20.001234Z",
    }
    options = message((1, 0), (2, message((1, "uid"))), (4, "Background"))
    assert decode(body("v1", "DeleteOptions", options)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid"},
        "propagationPolicy": "Background",
    }


POD = 'Pod in version "v1" cannot be handled as a Pod: '
SCHEMA = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def schema(raw):
    """A definition's only schema."""
    return body(*SCHEMA, message((2, message((7, message((4, message((1, raw)))))))))


def nested(depth):
    """Schemas in one another, as ``not``."""
    raw = b""
    for _ in range(depth):
        raw = message((28, raw))
    return raw


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (
            b"",
            (
                "the object provided is unrecognized: provided data does not appear to be a "
                "protobuf message, expected prefix [107 56 115 0] (<empty>)"
            ),
        ),
        (
            b'{"kind":"Pod"}',
            (
                "the object provided is unrecognized: provided data does not appear to be a "
                'protobuf message, expected prefix [107 56 115 0] ({"kind":"Pod"})'
            ),
        ),
        (MAGIC, "the object provided is unrecognized: empty body (6b387300)"),
        (MAGIC + b"\x0a\x7f", "the object provided is unrecognized: unexpected EOF (6b3873000a7f)"),
        (
            body("apps/v1beta1", "Deployment", b""),
            (
                'Deployment in version "v1beta1" cannot be handled as a Deployment: no kind '
                '"Deployment" is registered for version "apps/v1beta1"'
            ),
        ),
        (
            body("v1", "PodSpec", b""),
            (
                'PodSpec in version "v1" cannot be handled as a PodSpec: no kind "PodSpec" is '
                'registered for version "v1"'
            ),
        ),
        (body("v1", "Pod", b"\xff"), POD + "unexpected EOF"),
        (body("v1", "Pod", b"\xff" * 11), POD + "proto: integer overflow"),
        (body("v1", "Pod", b"\x12" + b"\xff" * 9 + b"\x01"), POD + "unexpected EOF"),
        (body("v1", "Pod", message((1, 5))), POD + "proto: wrong wireType = 0 for field Metadata"),
        (
            body("v1", "Pod", message((2, message((4, b"x"))))),
            POD + "proto: wrong wireType = 2 for field TerminationGracePeriodSeconds",
        ),
        (
            body("v1", "Pod", message((1, b"\x09" + bytes(8)))),
            POD + "proto: wrong wireType = 1 for field Name",
        ),
        (
            body("v1", "Pod", message((1, message((11, 5))))),
            POD + "proto: wrong wireType = 0 for field Labels",
        ),
        (
            body("v1", "Pod", message((1, message((14, 5))))),
            POD + "proto: wrong wireType = 0 for field Finalizers",
        ),
        (body("v1", "Pod", b"\x02\x00"), POD + "proto: Pod: illegal tag 0 (wire type 2)"),
        (body("v1", "Pod", b"\x14"), POD + "proto: Pod: wiretype end group for non-group"),
        (body("v1", "Pod", b"\x9b\x06"), POD + "unexpected EOF"),
        (
            body("v1", "Pod", b"\x13\x14"),
            POD + "proto: wrong wireType = 3 for field Spec",
        ),
        (body("v1", "Pod", b"\x16"), POD + "proto: illegal wireType 6"),
        (
            body("v1", "Pod", message((1, message((1, b"\xff"))))),
            POD + "string field contains invalid UTF-8",
        ),
        (
            body("v1", "Pod", message((1, message((8, message((1, -(2**40)))))))),
            POD + "Time.MarshalJSON: year outside of range [0,9999]",
        ),
        (
            body("v1", "Pod", message((1, message((8, message((1, 2**62))))))),
            POD + "Time.MarshalJSON: year outside of range [0,9999]",
        ),
        (
            body("v1", "Pod", message((1, message((17, message((7, message((1, "{"))))))))),
            POD + "error decoding patch: Input data was truncated",
        ),
        (body("v1", "Pod", b"", (3, "gzip")), POD + "encoded or compressed contents are not read"),
        (
            body("v1", "Pod", b"", (4, "application/json")),
            POD + "encoded or compressed contents are not read",
        ),
        (
            schema(b"\x49" + struct.pack("<d", float("inf"))),
            (
                'CustomResourceDefinition in version "v1" cannot be handled as a '
                "CustomResourceDefinition: json: unsupported value: inf"
            ),
        ),
    ],
)
def test_malformed_bodies_are_bad_requests(sent, fault):
    with pytest.raises(BadRequest) as refusal:
        decode(sent)
    assert refusal.value.message == fault


@pytest.mark.parametrize("depth", [DEEPEST // 2, DEEPEST + 1, 5000])
def test_too_deep_nesting_is_rejected(depth):
    if depth < DEEPEST:
        assert decode(schema(nested(depth - 10)))["kind"] == SCHEMA[1]
        return
    with pytest.raises(BadRequest, match="exceeded max depth of 200"):
        decode(schema(nested(depth)))


def test_too_deep_json_within_is_rejected():
    """A message is one level; what it is in JSON may be two."""
    raw = b""
    for _ in range(DEEPEST * 2 // 3):
        raw = message((29, message((1, "a"), (2, raw))))
    with pytest.raises(BadRequest, match="exceeded max depth of 200"):
        decode(schema(raw))


def test_an_error_names_the_expected_kind():
    with pytest.raises(BadRequest, match=r"must be of type Pod\): provided data does not"):
        decode(b"x", "Pod")
    with pytest.raises(BadRequest, match=r"Node in version .v1. cannot be handled as a Pod: unexp"):
        decode(body("v1", "Node", b"\x12"), "Pod")


@pytest.mark.parametrize(
    "unknown",
    [
        message((98, 0), (99, "x")),
        number(99 << 3 | 5) + b"1234" + number(99 << 3 | 1) + b"12345678",
        # a group in a group, with a field in each
        number(99 << 3 | 3) + b"\x08\x05" + b"\x13\x0a\x01x\x14" + number(99 << 3 | 4),
    ],
    ids=["fields", "fixed", "groups"],
)
def test_unknown_fields_are_ignored(unknown):
    pod = message((2, unknown + message((10, "node")) + unknown))
    assert decode(body("v1", "Pod", pod))["spec"] == {"nodeName": "node"}


def test_repeated_fields_are_appended_and_others_replaced():
    twice = message(
        (1, message((1, "a"), (11, message((1, "k"), (2, "1"))), (14, "x"))),
        (1, message((2, "g"), (1, "b"), (11, message((1, "k"), (2, "2"))), (14, "y"))),
        (1, message((2, ""))),
    )
    assert decode(body("v1", "ConfigMap", twice))["metadata"] == {
        "name": "b",
        "labels": {"k": "2"},
        "finalizers": ["x", "y"],
    }


def test_values_in_json_are_counted():
    many = b"[" + b"1," * 2000 + b"1]"
    with pytest.raises(TooLarge, match="limit is 100000 values"):
        decode(schema(b"".join(message((20, message((1, many)))) for _ in range(60))))


def test_times_before_1970_are_decoded():
    metadata = message((8, message((1, -1), (2, 0))))
    read = decode(body("v1", "ConfigMap", message((1, metadata))))
    assert read["metadata"] == {"creationTimestamp": "1969-12-31T23:59:59Z"}


def test_int32_values_are_truncated():
    spec = message((1, 2**32 + 7))
    scale = decode(body("autoscaling/v1", "Scale", message((2, spec))))
    assert scale["spec"] == {"replicas": 7}


@pytest.mark.parametrize(
    "version", ["v1", "rbac.authorization.k8s.io/v1", "kubevirt.io/v1", "meta.k8s.io/v1"]
)
def test_options_of_any_group_are_decoded(version):
    sent = body(version, "DeleteOptions", message((4, "Background")))
    assert decode(sent)["propagationPolicy"] == "Background"


@pytest.mark.parametrize(
    "empty",
    [b"\x6a\x00", b"\x5a\x00", b"\xfa\x06\x00", b"\x7b\x7c", b"\x7b\x08\x01\x7c"],
    ids=["owners", "labels", "unknown", "groups", "in groups"],
)
def test_a_body_has_a_bounded_number_of_fields(empty):
    metadata = message((1, empty * MAX_VALUES))
    with pytest.raises(TooLarge, match="limit is 100000 values"):
        decode(body("v1", "ConfigMap", metadata))


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(all_kinds())),
    st.recursive(
        st.lists(
            st.tuples(st.integers(1, 25), st.integers(0, 2**64 - 1) | st.binary(max_size=4)),
            max_size=4,
        ).map(lambda pairs: message(*pairs)),
        lambda inner: st.lists(st.tuples(st.integers(1, 25), inner), max_size=4).map(
            lambda pairs: message(*pairs)
        ),
    ),
)
def test_any_message_is_a_document_or_a_bad_request(kind, raw):
    try:
        document = decode(body(*kind, raw))
    except BadRequest:
        return
    assert json.loads(json.dumps(document)) == document


@given(st.sampled_from(SENT), st.data())
def test_any_corrupt_body_is_a_document_or_a_bad_request(sent, data):
    whole = bytearray.fromhex(sent[0])
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    torn = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        document = decode(torn)
    except BadRequest:
        return
    assert isinstance(document, dict)
    for value in document.get("binaryData", {}).values():
        base64.b64decode(value, validate=True)
