"""Validation of the spec of a VMI or of a template: the rules of KubeVirt's webhooks.

Every rule gets the spec and its path in the object, and yields one Cause for each wrong field; the
messages are those of KubeVirt's webhooks, since scripts match them.  To add a rule: a function in
the module of its subject, and its name in RULES there.
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
    """Yield all causes for which a spec is invalid."""
    for rule in RULES:
        yield from rule(spec, path)
