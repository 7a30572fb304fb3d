"""Constants and predicates of Service specs, for defaults, validation and allocation."""

from corral.api.object import Document

CLUSTER_IP = "ClusterIP"
NODE_PORT = "NodePort"
LOAD_BALANCER = "LoadBalancer"
EXTERNAL_NAME = "ExternalName"
TYPES = (CLUSTER_IP, NODE_PORT, LOAD_BALANCER, EXTERNAL_NAME)

IPV4, IPV6 = "IPv4", "IPv6"
NONE = "None"
"""The cluster IP of a headless service."""
SINGLE_STACK = "SingleStack"
PREFER_DUAL_STACK = "PreferDualStack"
REQUIRE_DUAL_STACK = "RequireDualStack"
POLICIES = (SINGLE_STACK, PREFER_DUAL_STACK, REQUIRE_DUAL_STACK)


def is_headless(spec: Document) -> bool:
    """Return whether a Service is headless: without a cluster IP, resolved to its pods."""
    return spec.get("clusterIPs") == [NONE]


def is_external_name(spec: Document) -> bool:
    """Return whether a Service is only an alias of a host name."""
    return spec.get("type") == EXTERNAL_NAME


def has_node_ports(spec: Document) -> bool:
    """Return whether a Service of this type may have node ports."""
    return spec.get("type") in (NODE_PORT, LOAD_BALANCER)


def is_reachable_from_outside(spec: Document) -> bool:
    """Return whether a Service has external traffic, hence ``externalTrafficPolicy``."""
    return has_node_ports(spec) or (
        spec.get("type") == CLUSTER_IP and bool(spec.get("externalIPs"))
    )


def needs_health_check(spec: Document) -> bool:
    """Return whether a Service has a ``healthCheckNodePort``."""
    return spec.get("type") == LOAD_BALANCER and spec.get("externalTrafficPolicy") == "Local"


def family_of(address: str) -> str:
    """Return the family of a valid address."""
    return IPV6 if ":" in address else IPV4
