"""Who the components of this process are: users that prove nothing, since they come from inside."""

from corral.api.request import User

CONTROLLER = User(
    name="system:serviceaccount:kubevirt:kubevirt-controller",
    groups=("system:serviceaccounts", "system:authenticated"),
    agent="virt-controller",
)
PROVISIONER = User(
    name="system:serviceaccount:corral:storage",
    groups=("system:serviceaccounts", "system:authenticated"),
    agent="storage-provisioner",
)
STAND_IN = User(
    name="system:kube-controller-manager",
    groups=("system:authenticated",),
    agent="kube-controller-manager",
)
"""Who the stand-ins for Kubernetes' own loops are, and who reads for everybody in this process."""


def node(name: str) -> User:
    """Who a node's agent is: kubelet and virt-handler in one."""
    return User(
        name=f"system:node:{name}",
        groups=("system:nodes", "system:authenticated"),
        agent="virt-handler",
    )
