"""What instance types and preferences make of a machine's spec.  Pure.

The views are in ``corral.api.kinds.kubevirt.instancetype``.  ``apply`` puts them into a spec,
``require`` says whether a preference's needs are met, ``matchers`` what a VirtualMachine refers to.
"""
