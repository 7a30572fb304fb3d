"""ServiceAccounts, roles and bindings of an installation.

Users have KubeVirt's own roles, which the embedded server has too.  A node of machines has the
rights of Kubernetes' Node authorizer, since its user is ``system:node:NAME``; the role
``corral:nodes`` adds what that does not know: VMIs, and what pod networks are made from.
"""

from collections.abc import Iterator
from typing import Final

from corral.api.images import IMAGES_PATH, MIGRATIONS_PATH
from corral.api.kinds.auth.certificate_signing_request import NODE_GROUP
from corral.api.kinds.auth.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
)
from corral.api.object import Document
from corral.controllers.serving_certificate import API_SERVICES, SECRET
from corral.daemon.install.options import (
    CONTROLLERS,
    NODE,
    SYSTEM,
    Options,
    document,
    labeled,
)
from corral.daemon.rbac import kubevirt, own_kinds
from corral.daemon.rbac.notation import READ, binding, group, paths, role, rule

CONTROLLERS_ROLE: Final = "corral:controllers"
NODES_ROLE: Final = "corral:nodes"
IMAGES_ROLE: Final = "corral:node-images"
MIGRATIONS_ROLE: Final = "corral:node-migrations"
PROVISIONER_ROLE: Final = "corral:provisioner"
_NO_LABELS: Final[dict[str, str]] = {}
_ALL: Final = "create delete get list patch update watch"
_CERTIFY: Final = "get list patch watch"
"""The verbs by which CA bundles are written."""
_SETS: Final = "virtualmachineinstancereplicasets"
_MIGRATIONS: Final = "virtualmachineinstancemigrations"
_BOOTSTRAP: Final = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
_RENEWAL: Final = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"

_CONTROLLERS = role(
    CONTROLLERS_ROLE,
    rule(_ALL, "core", "pods persistentvolumeclaims"),
    rule("create", "core", "pods/eviction"),
    rule("patch", "core", "pods/resize"),
    rule(READ, "core", "limitranges namespaces nodes resourcequotas"),
    rule("create patch update", "core events.k8s.io", "events"),
    rule(_ALL, "apps", "controllerrevisions"),
    rule(READ, "storage.k8s.io", "storageclasses"),
    rule(
        _ALL,
        "kubevirt.io",
        f"virtualmachines virtualmachines/finalizers virtualmachines/status {_SETS} "
        f"{_SETS}/finalizers {_SETS}/status virtualmachineinstances "
        f"virtualmachineinstances/finalizers {_MIGRATIONS} {_MIGRATIONS}/status",
    ),
    rule(READ, "migrations.kubevirt.io", "migrationpolicies"),
    rule(f"{READ} patch update", "kubevirt.io", "kubevirts kubevirts/status"),
    rule(
        f"{READ} patch update",
        "pool.kubevirt.io",
        "virtualmachinepools virtualmachinepools/finalizers virtualmachinepools/status",
    ),
    rule(
        f"{READ} patch update delete",
        "corral.dev",
        "virtualmachinewarmpools virtualmachinewarmpools/finalizers virtualmachinewarmpools/status "
        "virtualmachineclaims virtualmachineclaims/finalizers virtualmachineclaims/status",
    ),
    rule(f"create delete {READ}", "corral.dev", "virtualmachinecheckpoints"),
    rule("patch", "corral.dev", "virtualmachinecheckpoints/status"),
    rule(
        READ,
        "instancetype.kubevirt.io",
        "virtualmachineclusterinstancetypes virtualmachineclusterpreferences "
        "virtualmachineinstancetypes virtualmachinepreferences",
    ),
    rule(
        _ALL,
        "cdi.kubevirt.io",
        "datasources datasources/status datavolumes datavolumes/finalizers datavolumes/status",
    ),
    rule(READ, "cdi.kubevirt.io", "cdiconfigs storageprofiles"),
    rule("create get update", "core", "nodes/proxy"),
    rule(_CERTIFY, "admissionregistration.k8s.io",
         "mutatingwebhookconfigurations validatingwebhookconfigurations",
         names=CONTROLLERS),
    rule(_CERTIFY, "apiregistration.k8s.io", "apiservices", names=" ".join(API_SERVICES)),
    rule("list watch", "core", "secrets", names=SECRET),
    labels=_NO_LABELS,
)  # fmt: skip
"""The rights of our controllers over objects of all namespaces.

``finalizers`` are for owner references with ``blockOwnerDeletion``, ``nodes/proxy`` for consoles
and other subresources of VMIs, which nodes serve.
"""

_OWN_NAMESPACE = (
    rule("create get update", "coordination.k8s.io", "leases"),
    rule("create", "core", "secrets"),
    rule("get patch", "core", "secrets", names=SECRET),
)
"""The rights of our controllers in their own namespace: the election, the serving certificate."""

_NODES = role(
    NODES_ROLE,
    rule(f"{READ} patch update", "kubevirt.io", "virtualmachineinstances"),
    rule(READ, "corral.dev", "virtualmachinecheckpoints"),
    rule("patch", "corral.dev", "virtualmachinecheckpoints/status"),
    rule(READ, "core", "endpoints namespaces nodes persistentvolumeclaims persistentvolumes pods "
         "serviceaccounts services"),
    rule(READ, "discovery.k8s.io", "endpointslices"),
    rule(READ, "networking.k8s.io", "networkpolicies"),
    rule(READ, "storage.k8s.io", "storageclasses"),
    labels=_NO_LABELS,
)  # fmt: skip
"""The rights of nodes beyond the Node authorizer's.

All kubelets are in that group, so it reads what the network of machines is made from, and writes
VMIs alone: the policy of ``admission`` keeps a node to its own.
"""

_IMAGES = role(IMAGES_ROLE, paths("get", IMAGES_PATH), labels=_NO_LABELS)
"""The right to read images of other nodes, which asks the API server for it (SubjectAccessReview).

The API server itself has nothing at that path.  Kubelets, which share the group, can read images
that are there for every node.
"""

_MOVES = role(MIGRATIONS_ROLE, paths("get", MIGRATIONS_PATH), labels=_NO_LABELS)
"""The right to reach the migrations of other nodes, where the VMI says who may have which."""

_PROVISIONER = role(
    PROVISIONER_ROLE,
    rule(f"{READ} patch update", "core", "persistentvolumeclaims persistentvolumeclaims/status"),
    rule("create delete get list patch update watch", "core", "persistentvolumes"),
    rule("create patch update", "core events.k8s.io", "events"),
    labels=_NO_LABELS,
)
"""The rights of the account by which nodes write claims: NodeRestriction lets no node do that."""


def documents(options: Options) -> Iterator[Document]:
    """Yield ServiceAccounts, roles and bindings."""
    namespace = options.namespace
    for name in (CONTROLLERS, NODE):
        yield document("v1", SERVICE_ACCOUNT, name, namespace)
    for each in (
        *kubevirt.ROLES, *own_kinds.ROLES,
        _CONTROLLERS, _NODES, _IMAGES, _MOVES, _PROVISIONER,
    ):  # fmt: skip
        yield _typed(CLUSTER_ROLE.api_version, CLUSTER_ROLE.name, each)
    own = role(CONTROLLERS_ROLE, *_OWN_NAMESPACE, namespace=namespace, labels=_NO_LABELS)
    yield _typed(ROLE.api_version, ROLE.name, own)
    controllers, node = (_account(name, namespace) for name in (CONTROLLERS, NODE))
    for each in (
        *kubevirt.BINDINGS,
        binding(CONTROLLERS_ROLE, controllers, labels=_NO_LABELS),
        binding(
            "corral:controllers-auth-delegator", controllers,
            to="system:auth-delegator", labels=_NO_LABELS,
        ),
        binding(NODES_ROLE, group(NODE_GROUP), labels=_NO_LABELS),
        binding(IMAGES_ROLE, group(NODE_GROUP), labels=_NO_LABELS),
        binding(MIGRATIONS_ROLE, group(NODE_GROUP), labels=_NO_LABELS),
        binding(PROVISIONER_ROLE, node, labels=_NO_LABELS),
        binding("corral:node-bootstrapper", node, to="system:node-bootstrapper", labels=_NO_LABELS),
        binding("corral:node-autoapprove-bootstrap", node, to=_BOOTSTRAP, labels=_NO_LABELS),
        binding(
            "corral:node-autoapprove-renewal", group(NODE_GROUP), to=_RENEWAL, labels=_NO_LABELS
        ),
        binding(
            "corral:node-auth-delegator", group(NODE_GROUP),
            to="system:auth-delegator", labels=_NO_LABELS,
        ),
    ):  # fmt: skip
        yield _typed(CLUSTER_ROLE_BINDING.api_version, CLUSTER_ROLE_BINDING.name, each)
    for each in (
        binding(CONTROLLERS_ROLE, controllers, namespace=namespace, labels=_NO_LABELS),
        binding(
            "corral:controllers-authentication-reader", controllers,
            to="extension-apiserver-authentication-reader", namespace=SYSTEM, labels=_NO_LABELS,
        ),
    ):  # fmt: skip
        yield _typed(ROLE_BINDING.api_version, ROLE_BINDING.name, each)


def _account(name: str, namespace: str) -> Document:
    return {"kind": SERVICE_ACCOUNT, "name": name, "namespace": namespace}


def _typed(api_version: str, kind: str, document: Document) -> Document:
    return labeled({"apiVersion": api_version, "kind": kind, **document})
