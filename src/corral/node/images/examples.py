"""Images of KubeVirt's examples, and hints for images without a registry."""

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
"""Names of the small guest in KubeVirt's user guide and labs."""
_COMPLETE: Final = frozenset(map(parse, DEMO_REFERENCES))
_REPOSITORIES: Final = frozenset(each.repository for each in _COMPLETE)


def build_hint(name: Reference) -> str:
    """Return the hint to build an example image; empty for other images."""
    if name in _COMPLETE:
        return "corral image build-demo makes it here"
    if name.repository in _REPOSITORIES and not name.digest:
        return f"corral image build-demo --as {name} makes it here"
    return ""


def substitute_hint(name: Reference) -> str:
    """Return the hint to import or substitute an image if its registry is unreachable."""
    command = f"corral image import FILE {name}"
    if name.digest or build_hint(name):
        return command
    return f"{command}, or a small Linux guest in its place: corral image build-demo --as {name}"


def import_hint(reference: str) -> str:
    """Return the hint to import a disk under a name."""
    return f"import a disk under that name: corral image import FILE {reference}"


def with_option(hint: str, option: Sequence[str]) -> str:
    """Add the option of the data directory to the commands in a hint."""
    command = " ".join((r"\g<0>", *(shlex.quote(word).replace("\\", r"\\") for word in option)))
    return re.sub(r"\bcorral image [a-z-]+", command, hint)
