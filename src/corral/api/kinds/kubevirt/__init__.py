"""KubeVirt's kinds: replica sets, pools, VirtualMachines, instance types, the KubeVirt object."""
