"""What registries say of an image is checked before anything is fetched."""

import json

import pytest

from corral.node.images import manifest
from corral.node.images.error import ImageError
from corral.node.images.limits import Limits


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "manifest is not valid"),
        (b"<html>", "manifest is not valid"),
        (b"[]", "manifest is not valid"),
        (b'{"mediaType": "\xff"}', "manifest is not valid"),
        (b"[" * 100_000, "manifest is not valid"),
        (b'{"schemaVersion": 1}', "manifest schema 1"),
        (b'{"schemaVersion": 2, "layers": [{"digest": "sha256:../../x"}]}', "names content as"),
        (b'{"schemaVersion": 2, "layers": [{"digest": "md5:00"}]}', "names content as"),
        (
            b'{"schemaVersion": 2, "layers": [{"digest": "x"}], "manifests": [{"digest": "y"}]}',
            "an image and a list of images at once",
        ),
    ],
)
def test_inconsistent_manifests_are_rejected(body, message):
    with pytest.raises(ImageError, match=message):
        manifest.parse(body, "it")


def test_images_of_invalid_sizes_are_rejected():
    layer = manifest.Descriptor(digest="sha256:" + "0" * 64, size=100)
    with pytest.raises(ImageError, match="200 bytes; 150 are allowed"):
        manifest.check_layers(
            manifest.Manifest(layers=(layer, layer)), "it", Limits(download_bytes=150)
        )
    with pytest.raises(ImageError, match="has no layers"):
        manifest.check_layers(manifest.Manifest(), "it", Limits())
    with pytest.raises(ImageError, match="128 layers"):
        manifest.check_layers(manifest.Manifest(layers=(layer,) * 128), "it", Limits())


def entry(digit, **platform):
    found = {"digest": "sha256:" + digit * 64, "size": 1}
    return found | ({"platform": platform} if platform else {})


def index(*entries):
    return manifest.parse(json.dumps({"schemaVersion": 2, "manifests": entries}).encode(), "it")


def test_the_platform_of_guests_is_selected():
    arm = entry("1", os="linux", architecture="arm64", variant="v8")
    amd = entry("2", os="linux", architecture="amd64", **{"os.version": "x"})
    assert manifest.choose(index(arm, amd), "it").digest == amd["digest"]
    assert manifest.choose(index(entry("3")), "it").digest == "sha256:" + "3" * 64


def test_other_available_platforms_are_named():
    with pytest.raises(ImageError, match="no image for linux/amd64; there is windows/amd64"):
        manifest.choose(index(entry("1", os="windows", architecture="amd64")), "it")
    with pytest.raises(ImageError, match="there is none"):
        manifest.choose(index(entry("1"), entry("2")), "it")
