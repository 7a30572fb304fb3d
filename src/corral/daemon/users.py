"""Who the components of this process are: users that prove nothing, since they come from inside."""

from corral.api.wire import User

CONTROLLER = User(
    name="system:serviceaccount:kubevirt:kubevirt-controller",
    groups=("system:serviceaccounts", "system:authenticated"),
)
PROVISIONER = User(
    name="system:serviceaccount:corral:storage",
    groups=("system:serviceaccounts", "system:authenticated"),
)
STAND_IN = User(name="system:kube-controller-manager", groups=("system:authenticated",))
"""Who the stand-ins for Kubernetes' own loops are, and who reads for everybody in this process."""
