"""KubeVirt's rules for the spec of a machine, wherever it stands: in a machine or in a template.

Every rule gets the spec and its path in the document, and yields one Cause for each wrong field;
the messages are those of KubeVirt's webhooks, which people and scripts know.  To add a rule: a
function in the file of its theme, and its name in RULES there.
"""

from collections.abc import Iterator

from corral.api.errors import Cause
from corral.api.kinds.vmi.validation import (
    capacity,
    devices,
    disks,
    files,
    networks,
    placement,
    volumes,
)
from corral.api.kinds.vmi.vmi import Spec

RULES = (
    *placement.RULES,
    *capacity.RULES,
    *networks.RULES,
    *disks.RULES,
    *devices.RULES,
    *volumes.RULES,
    *files.RULES,
)


def check_spec(spec: Spec, path: str) -> Iterator[Cause]:
    """Everything that is wrong with a machine's spec."""
    for rule in RULES:
        yield from rule(spec, path)
