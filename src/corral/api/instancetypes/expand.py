"""Expansion: a template with its instance type, its preference and the default devices.

The order matters: default devices are added first, because a preference sets their models
(KubeVirt's virt-controller, and its pkg/instancetype/expand).
"""

from corral.api.errors import Cause
from corral.api.instancetypes.apply import apply
from corral.api.instancetypes.matchers import MATCHERS
from corral.api.instancetypes.preferred import prefer_attached
from corral.api.kinds.kubevirt.instancetype import InstancetypeSpec, PreferenceSpec
from corral.api.kinds.vmi.defaults import DEVICE_STEPS, SPEC_STEPS, default_input_devices
from corral.api.object import Document


def apply_with_devices(
    template: Document,
    instancetype: InstancetypeSpec | None,
    preference: PreferenceSpec | None,
    path: str = "spec.template.spec",
) -> list[Cause]:
    """Change a template in place as ``apply`` does, with the default devices."""
    spec = template["spec"]
    if preference is not None:
        prefer_attached(preference, spec)
    for step in DEVICE_STEPS:
        step(spec)
    if causes := apply(template, instancetype, preference, path):
        return causes
    default_input_devices(spec)
    return []


def expand(
    vm: Document, instancetype: InstancetypeSpec | None, preference: PreferenceSpec | None
) -> list[Cause]:
    """Replace a VirtualMachine's references by their content, in place; return the conflicts."""
    template = vm["spec"]["template"]
    if causes := apply_with_devices(template, instancetype, preference):
        return causes
    for step in SPEC_STEPS:
        step(template["spec"])
    for matcher in MATCHERS:
        vm["spec"].pop(matcher.field, None)
        (vm.get("status") or {}).pop(matcher.status_field, None)
    return []
