"""What the spec of a service says, in words that its defaults, rules and allocation share."""

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
    """Whether a service has no address of its own: its name stands for all who answer it."""
    return spec.get("clusterIPs") == [NONE]


def is_external_name(spec: Document) -> bool:
    """Whether a service is but another name for a host, with nothing of its own."""
    return spec.get("type") == EXTERNAL_NAME


def has_node_ports(spec: Document) -> bool:
    """Whether a service of this type may be reached by ports on nodes."""
    return spec.get("type") in (NODE_PORT, LOAD_BALANCER)


def is_reachable_from_outside(spec: Document) -> bool:
    """Whether traffic may come to a service from outside the cluster, and so has a policy."""
    return has_node_ports(spec) or (
        spec.get("type") == CLUSTER_IP and bool(spec.get("externalIPs"))
    )


def needs_health_check(spec: Document) -> bool:
    """Whether load balancers ask each node if it has an endpoint: ``healthCheckNodePort``."""
    return spec.get("type") == LOAD_BALANCER and spec.get("externalTrafficPolicy") == "Local"


def family_of(address: str) -> str:
    """The family of an address that can be read."""
    return IPV6 if ":" in address else IPV4
