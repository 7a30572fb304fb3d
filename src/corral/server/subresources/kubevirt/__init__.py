"""Subresources of VirtualMachines and VMIs (subresources.kubevirt.io)."""
