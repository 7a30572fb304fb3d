import base64
import json
from pathlib import Path

import pytest

from corral.api.protobuf import decode
from corral.api.protobuf.messages import all_kinds
from corral.api.protobuf.writer import UnwritableError, begin_list, encode, list_item, wrapped

# A document of each kind, and what Kubernetes' own library (v1.36.2) makes of it; CSINode has a
# field more in the table than that version knew.
GOLDEN = [
    json.loads(line) for line in Path(__file__).with_name("golden.jsonl").read_text().splitlines()
]


def expected(golden):
    document = golden["document"]
    return f"{document['apiVersion']} {document['kind']}"


WRITTEN = [each for each in GOLDEN if "protobuf" in each]


def test_the_samples_are_from_kubernetes():
    assert [expected(each) for each in GOLDEN if each not in WRITTEN] == [
        "storage.k8s.io/v1 CSINode"
    ]


@pytest.mark.parametrize("golden", WRITTEN, ids=expected)
def test_encoded_bytes_are_those_of_kubernetes(golden):
    assert encode(golden["document"]).hex() == base64.b64decode(golden["protobuf"]).hex()


@pytest.mark.parametrize("golden", GOLDEN, ids=expected)
def test_encoded_documents_round_trip(golden):
    document = golden["document"]
    written = golden.get("protobuf")
    read = decode(base64.b64decode(written) if written else encode(document))
    assert fitted(read, document) == document


def fitted(read, document):
    """Return a decoded document without the zero values that Kubernetes writes for unset fields."""
    if isinstance(document, dict):
        return {key: fitted(read.get(key), value) for key, value in document.items()}
    if isinstance(document, list):
        assert len(read) == len(document)
        return [fitted(*each) for each in zip(read, document, strict=True)]
    return read


@pytest.mark.parametrize("kind", sorted(all_kinds()), ids=" ".join)
def test_an_empty_object_of_every_kind_round_trips(kind):
    empty = {"apiVersion": kind[0], "kind": kind[1]}
    read = decode(encode(empty))
    assert encode(read) == encode(empty)
    assert encode(decode(encode(read))) == encode(read)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"},
        {"apiVersion": "v1", "kind": "PodSpec"},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": []},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 5}},
        {"apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"a": "?"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "immutable": "yes"},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generation": 1.5}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generation": "1"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"creationTimestamp": "today"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"finalizers": [None]}},
    ],
)
def test_mismatched_values_are_not_encoded(document):
    with pytest.raises(UnwritableError):
        encode(document)


def test_lists_are_encoded_item_by_item():
    items = [
        {"metadata": {"name": name}, "data": {name: "x" * size}}
        for name, size in (("a", 1), ("b", 130), ("c", 20_000))
    ]
    whole = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"}}
    name, head, start = begin_list(whole)
    made = wrapped(head, start + b"".join(list_item(name, each) for each in items))
    assert made == encode(whole | {"items": items})
    with pytest.raises(UnwritableError):
        begin_list({"apiVersion": "v1", "kind": "ConfigMap"})


def test_times_before_1970_and_numbers_below_zero():
    metadata = {"creationTimestamp": "1969-12-31T23:59:59Z", "generation": -1}
    written = encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    minus_one = b"\xff" * 9 + b"\x01"
    assert b"\x38" + minus_one in written
    assert b"\x08" + minus_one + b"\x10\x00" in written
