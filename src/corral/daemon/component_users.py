"""The users of this process's components; they need no credentials, since they call in process."""

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
"""The user of the stand-ins for kube-controller-manager, and of all informers of this process."""


def node(name: str) -> User:
    """Return the user of a node's agent, which is kubelet and virt-handler in one."""
    return User(
        name=f"system:node:{name}",
        groups=("system:nodes", "system:authenticated"),
        agent="virt-handler",
    )
