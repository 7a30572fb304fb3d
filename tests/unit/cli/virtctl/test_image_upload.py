"""``corral image-upload``: options, created objects, errors."""

import click
import pytest

from corral.api.kinds.cdi import population
from corral.api.object import Key
from corral.cli.errors import Problem
from corral.cli.virtctl import image_upload, upload_options
from corral.node.storage.population.error import ImageTooLarge


def read(*arguments):
    """Return the options of a command line."""
    command = image_upload.image_upload
    context = click.Context(command)
    command.parse_args(context, ["--image-path", "disk.img", *arguments])
    names = dict(context.params)
    positional = names.pop("arguments")
    return upload_options.read(positional, names)


def document(*arguments):
    return upload_options.document_for(read(*arguments))


def test_a_data_volume_is_created():
    assert document("dv", "fedora", "--size=10Gi") == {
        "metadata": {"name": "fedora", "annotations": {}, "labels": {}},
        "spec": {
            "source": {"upload": {}},
            "storage": {"resources": {"requests": {"storage": "10Gi"}}},
        },
    }


def test_a_claim_is_created():
    flags = ("--size", "1Gi", "--storage-class", "fast", "--block-volume", "--force-bind")
    made = document("PVC", "fedora", *flags)
    assert made["spec"] == {
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Block",
    }
    assert made["metadata"]["annotations"] == {
        population.UPLOAD_TARGET: "",
        "cdi.kubevirt.io/storage.bind.immediate.requested": "",
    }


def test_default_instance_type_and_preference_are_labels():
    made = document("dv", "a", "--default-instancetype=small", "--default-preference=linux")
    assert made["metadata"]["labels"] == {
        "instancetype.kubevirt.io/default-instancetype": "small",
        "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineClusterInstancetype",
        "instancetype.kubevirt.io/default-preference": "linux",
        "instancetype.kubevirt.io/default-preference-kind": "VirtualMachineClusterPreference",
    }


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            str(ImageTooLarge(112 * 2**20 + 1, 64 * 2**20)),
            "kubectl delete dv debian -n lab, and upload again with --size=113Mi or more.",
        ),
        (
            "the content has more than 9 bytes, which is more than the claim can hold: ask for …",
            "kubectl delete dv debian -n lab, and upload again with a larger --size.",
        ),
        ("the checksum differs", "Correct that, and upload again with --no-create."),
    ],
)
def test_a_failed_upload_has_a_hint(message, advice):
    assert image_upload._hint("dv", Key("lab", "debian"), message) == advice


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expecting two args"),
        (("dv",), "expecting two args"),
        (("vm", "a"), "invalid resource type vm"),
        (("dv", "a", "--pvc-name", "b"), "cannot use --pvc-name and args"),
        (("dv", "a", "--archive-path", "b"), "--archive-path is not supported by this version"),
        (("dv", "a", "--size", "much"), "validation failed for size=much"),
        (("dv", "a", "--access-mode", "ReadOnlyMany"), "cannot upload to a readonly volume"),
        (("dv", "a", "--volume-mode", "tape"), "Invalid volume mode 'tape'"),
        (
            ("dv", "a", "--default-preference-kind", "VirtualMachinePreference"),
            "--default-preference must be provided with --default-preference-kind",
        ),
        (
            ("dv", "a", "--no-create", "--default-instancetype", "b"),
            "--default-instancetype and --default-preference cannot be used with --no-create",
        ),
    ],
)
def test_invalid_flags_are_rejected_with_virtctls_messages(arguments, words):
    with pytest.raises(Problem) as problem:
        read(*arguments)
    assert problem.value.message.startswith(words)
