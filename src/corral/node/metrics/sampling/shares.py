"""What each of several nodes takes of the one host that they share.  Pure."""

from collections.abc import Mapping

from corral.node.hypervisor import Usage


def shares(host: Usage, machines: Mapping[str, Usage]) -> dict[str, Usage]:
    """By node: what its own machines take, and an equal part of what else the host does.

    A single node takes all that its host does.
    """
    other_nanos = host.cpu_nanos - sum(one.cpu_nanos for one in machines.values())
    other_bytes = host.memory_bytes - sum(one.memory_bytes for one in machines.values())
    return {
        node: Usage(
            own.cpu_nanos + max(0, other_nanos) // len(machines),
            own.memory_bytes + max(0, other_bytes) // len(machines),
        )
        for node, own in machines.items()
    }
