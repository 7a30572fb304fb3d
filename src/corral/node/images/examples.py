"""The small guest of KubeVirt's examples: the names that it has there, and how to have it here."""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from corral.node.images.reference import Reference, parse

DEMO_REFERENCES: Final = (
    "kubevirt/cirros-container-disk-demo:latest",
    "kubevirt/cirros-container-disk-demo:devel",
    "kubevirt/cirros-registry-disk-demo:latest",
    "kubevirt/cirros-registry-disk-demo:devel",
    "quay.io/kubevirt/cirros-container-disk-demo:latest",
    "quay.io/kubevirt/cirros-container-disk-demo:devel",
)
"""The names under which KubeVirt's user guide and its labs know it."""
_COMPLETE: Final = frozenset(map(parse, DEMO_REFERENCES))
_REPOSITORIES: Final = frozenset(each.repository for each in _COMPLETE)


def advice(name: Reference) -> str:
    """How to have an image without a registry; empty where it is no such guest, or one of them."""
    if name in _COMPLETE:
        return "corral image build-demo makes it here"
    if name.repository in _REPOSITORIES and not name.digest:
        return f"corral image build-demo --as {name} makes it here"
    return ""


def standing_in(name: Reference) -> str:
    """What may take an image's place where no registry is reached; of an example, ``advice``."""
    others = f"corral image import FILE {name}"
    if name.digest or advice(name):
        return others
    return f"{others}, or a small Linux guest in its place: corral image build-demo --as {name}"


def importing(reference: str) -> str:
    """How to have any image without a registry."""
    return f"import a disk under that name: corral image import FILE {reference}"


def located(hint: str, option: Sequence[str]) -> str:
    """A hint whose commands find the images, wherever these are."""
    command = " ".join((r"\g<0>", *(shlex.quote(word).replace("\\", r"\\") for word in option)))
    return re.sub(r"\bcorral image [a-z-]+", command, hint)
