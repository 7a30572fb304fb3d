import subprocess
import sys
from importlib import resources

from corral.api.kinds import KINDS
from corral.api.protobuf.messages import all_kinds, all_messages, kind_message, message
from corral.api.types import schema_of

SERVED = [
    (f"{kind.group}/{version.name}".lstrip("/"), kind)
    for kind in KINDS
    if kind.native
    for version in kind.versions
]
SCALARS = set("sbyildtuqxjw")


def test_every_type_in_the_table_is_supported():
    present = all_messages()
    for each in present.values():
        for field in each.fields.values():
            assert field.type in (present if field.is_message else SCALARS), (each.name, field)


def test_every_field_of_the_table_is_decoded():
    text = resources.files("corral.api.protobuf").joinpath("messages.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("#", "@"))]
    assert len(lines) > 600
    assert sum(len(line.split()) - 1 for line in lines) == sum(
        len(each.fields) for each in all_messages().values()
    )


def test_every_served_kind_of_kubernetes_has_a_message():
    served = [(version, kind.name) for version, kind in SERVED]
    assert len(served) > 50
    assert [each for each in served if kind_message(*each) is None] == []


def test_an_unknown_kind_has_no_message():
    assert kind_message("v1", "PodSpec") is None
    assert kind_message("example.com/v1", "Status") is None
    assert kind_message("kubevirt.io/v1", "VirtualMachine") is None
    assert kind_message("v1", "Status") == "meta.v1.Status"
    assert (
        kind_message("meta.k8s.io/v1", "PartialObjectMetadata") == "meta.v1.PartialObjectMetadata"
    )
    assert ("apps/v1", "DeploymentList") in set(all_kinds())


def test_the_table_is_loaded_lazily():
    """It takes milliseconds, which a manager's start does not wait for."""
    program = (
        "from corral.server.app import ApiServer; from corral.api.protobuf import messages; "
        "print(messages._table.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"0\n"


LETTERS = {"s": "string", "t": "string", "y": "string", "w": "array"}


def test_schemas_have_the_types_of_map_values():
    """Types that are read from Kubernetes' OpenAPI have lost the values of maps."""
    found = {}
    for version, kind in SERVED:
        name = kind_message(version, kind.name)
        compare(name, schema_of(kind.view_of(version.rpartition("/")[2])), found)
    assert found["resource.v1.Device"] == {"attributes", "capacity", "nodeAllocatableResources"}
    assert len(found) > 15


def compare(name, schema, found):
    """The maps of a message are those of a schema, and so are those of the messages in it."""
    if name in found or "properties" not in schema:
        return
    maps = found[name] = set()
    for field in message(name).fields.values():
        expected = schema if field.inlined else schema["properties"].get(field.name)
        if expected is None:  # of another version
            continue
        if field.shape == "{}":
            maps.add(field.name)
            expected = expected["additionalProperties"]
            target = "object" if field.is_message else LETTERS.get(field.type)
            assert expected.get("type") == target, (name, field.name)
            assert (expected.get("format") == "quantity") == (field.type == "q"), (name, field.name)
        if field.shape == "[]":
            expected = expected.get("items", {})
        if field.is_message:
            compare(field.type, expected, found)
