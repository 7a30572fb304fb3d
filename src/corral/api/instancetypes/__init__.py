"""Instance types and preferences, applied to the spec of a VMI.  Pure.

Their types are in ``corral.api.kinds.kubevirt.instancetype``.  ``apply`` applies them to a spec,
``requirements`` checks those of a preference, ``matchers`` are a VirtualMachine's references.
"""
