"""Endpoints and slices of them: what kubectl prints, what they get, what they may not be."""

from typing import Any

import pytest

from corral.api.kind import Kind
from corral.api.kinds.networking.endpoints import ENDPOINTS
from corral.api.kinds.networking.endpointslice import ENDPOINT_SLICE

Document = dict[str, Any]


def cell(kind: Kind, name: str, document: Document) -> Any:
    return next(column.cell(document) for column in kind.columns if column.name == name)


def messages(kind: Kind, document: Document, old: Document | None = None) -> list[str]:
    kind.default(document)
    causes = kind.validate(document, old, "kubernetes-admin").causes
    return [f"{cause.field}: {cause.message}" for cause in causes]


def subset(addresses: int, *ports: int) -> Document:
    return {
        "addresses": [{"ip": f"10.0.0.{number}"} for number in range(1, addresses + 1)],
        "ports": [{"name": f"p{port}", "port": port} for port in ports],
    }


@pytest.mark.parametrize(
    ("subsets", "shown"),
    [
        ([], "<none>"),
        ([subset(1, 80)], "10.0.0.1:80"),
        ([subset(2)], "10.0.0.1,10.0.0.2"),
        ([subset(3, 80)], "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80"),
        ([subset(2, 80, 81)], "10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 1 more..."),
        ([subset(2, 80), subset(2, 81)], "10.0.0.1:80,10.0.0.2:80,10.0.0.1:81 + 1 more..."),
        ([{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}], "[fd00::1]:80"),
        ([{"notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}], ""),
    ],
)
def test_endpoints_in_a_table(subsets, shown):
    assert cell(ENDPOINTS, "Endpoints", {"subsets": subsets}) == shown


def test_columns_are_kubernetes():
    assert [column.name.upper() for column in ENDPOINTS.columns] == ["ENDPOINTS", "AGE"]
    names = [column.name.upper() for column in ENDPOINT_SLICE.columns]
    assert names == ["ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"]


def test_ports_of_endpoints_default_to_tcp():
    document = {"subsets": [subset(1, 80)]}
    assert messages(ENDPOINTS, document) == []
    assert document["subsets"][0]["ports"][0]["protocol"] == "TCP"


@pytest.mark.parametrize(
    ("subsets", "fault"),
    [
        ([{}], "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
        (
            [{"addresses": [{"ip": "x"}]}],
            (
                'subsets[0].addresses[0].ip: Invalid value: "x": must be a valid IP address, '
                "(e.g. 10.9.8.7 or 2001:db8::ffff)"
            ),
        ),
        (
            [{"notReadyAddresses": [{"ip": "127.0.0.1"}]}],
            (
                'subsets[0].notReadyAddresses[0].ip: Invalid value: "127.0.0.1": may not be in the '
                "loopback range (127.0.0.0/8, ::1/128)"
            ),
        ),
        (
            [{**subset(1), "ports": [{"port": 1}, {"port": 2, "name": "a"}]}],
            "subsets[0].ports[0].name: Required value",
        ),
        (
            [{**subset(1), "ports": [{"port": 0}]}],
            "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ),
    ],
)
def test_invalid_endpoints_are_rejected(subsets, fault):
    assert messages(ENDPOINTS, {"subsets": subsets}) == [fault]


@pytest.mark.parametrize("name", ["hostname", "nodeName"])
def test_names_of_endpoints_are_validated(name):
    found = messages(ENDPOINTS, {"subsets": [{"addresses": [{"ip": "10.0.0.1", name: "A"}]}]})
    assert [line.split(": ")[0] for line in found] == [f"subsets[0].addresses[0].{name}"]


# --------------------------------------------------------------------- slices


def piece(**fields: Any) -> Document:
    return {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], **fields}


def test_a_slice_in_a_table():
    full = piece(
        ports=[{"port": 80}, {"port": 81, "name": "a"}, {"name": "b"}, {}],
        endpoints=[{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3"]}],
    )
    assert cell(ENDPOINT_SLICE, "Ports", full) == "80,81,b + 1 more..."
    assert cell(ENDPOINT_SLICE, "Endpoints", full) == "10.0.0.1,10.0.0.2,10.0.0.3"
    empty = piece(endpoints=[])
    assert cell(ENDPOINT_SLICE, "Ports", empty) == "<unset>"
    assert cell(ENDPOINT_SLICE, "Endpoints", empty) == "<unset>"


def test_ports_of_a_slice_get_default_name_and_protocol():
    document = piece(ports=[{"port": 80}])
    assert messages(ENDPOINT_SLICE, document) == []
    assert document["ports"] == [{"port": 80, "name": "", "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"addressType": "", "endpoints": []}, "addressType: Required value"),
        (
            {"addressType": "IP", "endpoints": []},
            'addressType: Unsupported value: "IP": supported values: "FQDN", "IPv4", "IPv6"',
        ),
        (
            {"endpoints": [{"addresses": []}]},
            "endpoints[0].addresses: Required value: must contain at least 1 address",
        ),
        (
            {"endpoints": [{"addresses": ["fd00::1"]}]},
            'endpoints[0].addresses[0]: Invalid value: "fd00::1": must be a valid IPv4 address',
        ),
        (
            {"endpoints": [{"addresses": ["169.254.1.1"]}]},
            (
                'endpoints[0].addresses[0]: Invalid value: "169.254.1.1": may not be in the '
                "link-local range (169.254.0.0/16, fe80::/10)"
            ),
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"]}] * 1001},
            "endpoints: Too many: 1001: must have at most 1000 items",
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"] * 101}]},
            "endpoints[0].addresses: Too many: 101: must have at most 100 items",
        ),
        ({"ports": [{}, {}]}, 'ports[1].name: Duplicate value: ""'),
        (
            {"ports": [{"protocol": "x"}]},
            'ports[0].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"',
        ),
        ({"ports": [{}] * 20_001}, "ports: Too many: 20001: must have at most 20000 items"),
    ],
)
def test_invalid_slices_are_rejected(fields, fault):
    assert messages(ENDPOINT_SLICE, piece(**fields)) == [fault]


def test_names_in_a_slice_are_validated():
    assert (
        messages(ENDPOINT_SLICE, piece(addressType="FQDN", endpoints=[{"addresses": ["a.b."]}]))
        == []
    )
    wrong = {"addresses": ["10.0.0.1"], "hostname": "A", "nodeName": "B"}
    found = messages(ENDPOINT_SLICE, piece(endpoints=[wrong], ports=[{"name": "C"}]))
    assert [line.split(": ")[0] for line in found] == [
        "endpoints[0].hostname",
        "endpoints[0].nodeName",
        "ports[0].name",
    ]


def test_the_address_type_of_a_slice_is_immutable():
    new = piece(addressType="IPv6", endpoints=[])
    assert messages(ENDPOINT_SLICE, new, piece()) == [
        'addressType: Invalid value: "IPv6": field is immutable'
    ]
