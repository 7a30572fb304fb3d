"""Bootstrap roles and bindings of Kubernetes, as far as corral serves their resources."""

from corral.api.images import IMAGES_PATH, MIGRATIONS_PATH, VOLUMES_PATH
from corral.api.kinds.auth.bootstrap_token import NODE_GROUP as BOOTSTRAP_NODE_GROUP
from corral.api.kinds.auth.certificate_signing_request import NODE_GROUP
from corral.api.kinds.auth.rbac import GROUP, SERVICE_ACCOUNT
from corral.daemon.rbac.notation import (
    AGGREGATE,
    CHANGE,
    READ,
    WRITE,
    binding,
    group,
    paths,
    role,
    rule,
)

_RBAC = "rbac.authorization.k8s.io"
KUBELET_CLIENTS = "corral:kubelet-clients"
"""The group of the certificate by which the API server asks nodes."""
_HEALTH = "/healthz /livez /readyz /version /version/"
_WORKLOADS = "daemonsets deployments replicasets statefulsets"

_ADMIN = (
    rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    rule(WRITE, _RBAC, "rolebindings roles"),
)
_EDIT = (
    rule(READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    rule("impersonate", "core", "serviceaccounts"),
    rule(CHANGE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    rule("create", "core", "pods/eviction"),
    rule(
        CHANGE,
        "core",
        "configmaps events persistentvolumeclaims replicationcontrollers "
        "replicationcontrollers/scale secrets serviceaccounts services services/proxy",
    ),
    rule("create", "core", "serviceaccounts/token"),
    rule(
        CHANGE,
        "apps",
        f"{_WORKLOADS} deployments/rollback deployments/scale replicasets/scale statefulsets/scale",
    ),
    rule(CHANGE, "autoscaling", "horizontalpodautoscalers"),
    rule(CHANGE, "batch", "cronjobs jobs"),
    rule(CHANGE, "policy", "poddisruptionbudgets"),
    rule(CHANGE, "networking.k8s.io", "ingresses networkpolicies"),
    rule(CHANGE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
    rule(WRITE, "coordination.k8s.io", "leases"),
)
_VIEW = (
    rule(
        READ,
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
        "replicationcontrollers replicationcontrollers/scale serviceaccounts services "
        "services/status",
    ),
    rule(
        READ,
        "core",
        "bindings events limitranges namespaces/status pods/log pods/status "
        "replicationcontrollers/status resourcequotas resourcequotas/status",
    ),
    rule(READ, "core", "namespaces"),
    rule(READ, "discovery.k8s.io", "endpointslices"),
    rule(
        READ,
        "apps",
        f"controllerrevisions {_WORKLOADS} daemonsets/status deployments/scale deployments/status "
        "replicasets/scale replicasets/status statefulsets/scale statefulsets/status",
    ),
    rule(READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    rule(READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    rule(READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    rule(READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    rule(READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
)

ROLES = (
    role("cluster-admin", rule("*", "*", "*"), paths("*", "*")),
    role("admin", of_parts="admin"),
    role("edit", of_parts="edit", part_of="admin"),
    role("view", of_parts="view", part_of="edit"),
    role("system:aggregate-to-admin", *_ADMIN, part_of="admin"),
    role("system:aggregate-to-edit", *_EDIT, part_of="edit"),
    role("system:aggregate-to-view", *_VIEW, part_of="view"),
    role(  # it comes with metrics-server; here what that answers is answered without
        "system:aggregated-metrics-reader",
        rule(READ, "metrics.k8s.io", "nodes pods"),
        labels={
            "k8s-app": "metrics-server",
            **{f"{AGGREGATE}{whole}": "true" for whole in ("admin", "edit", "view")},
        },
    ),
    role(
        "system:basic-user",
        rule("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ),
    role(
        "system:discovery",
        paths("get", f"/api /api/* /apis /apis/* /openapi /openapi/* {_HEALTH}"),
    ),
    role("system:public-info-viewer", paths("get", _HEALTH)),
    role(
        "system:monitoring",
        paths(
            "get",
            "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*",
        ),
    ),
    role(
        "system:service-account-issuer-discovery",
        paths("get", "/.well-known/openid-configuration /openid/v1/jwks"),
    ),
    role(
        "system:auth-delegator",
        rule("create", "authentication.k8s.io", "tokenreviews"),
        rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
    role(
        "system:kubelet-api-admin",
        rule(READ, "core", "nodes"),
        rule("proxy", "core", "nodes"),
        rule("*", "core", "nodes/log nodes/metrics nodes/proxy nodes/stats"),
    ),
    role("corral:node-images", paths("get", IMAGES_PATH)),
    role("corral:node-volumes", paths("get", VOLUMES_PATH)),
    role("corral:node-migrations", paths("get", MIGRATIONS_PATH)),
    role(
        "system:node-bootstrapper",
        rule("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    ),
    *(
        role(
            f"system:certificates.k8s.io:certificatesigningrequests:{part}",
            rule("create", "certificates.k8s.io", f"certificatesigningrequests/{part}"),
        )
        for part in ("nodeclient", "selfnodeclient")
    ),
    role(
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        rule(
            "approve",
            "certificates.k8s.io",
            "signers",
            names="kubernetes.io/kube-apiserver-client",
        ),
    ),
    role(
        "system:persistent-volume-provisioner",
        rule("create delete get list watch", "core", "persistentvolumes"),
        rule("get list update watch", "core", "persistentvolumeclaims"),
        rule(READ, "storage.k8s.io", "storageclasses"),
        rule("watch", "core", "events"),
        rule("create patch update", "core events.k8s.io", "events"),
    ),
)

ROLES_OF_NAMESPACES = (
    role(  # who answers requests of its own (metrics adapters, schedulers) is bound to this one
        "extension-apiserver-authentication-reader",
        rule(READ, "core", "configmaps", names="extension-apiserver-authentication"),
        namespace="kube-system",
    ),
    role(
        "kubeadm:bootstrap-signer-clusterinfo",
        rule("get", "core", "configmaps", names="cluster-info"),
        namespace="kube-public",
    ),
    role(
        "corral:network",
        rule(READ, "core", "configmaps", names="corral-network"),
        namespace="kube-system",
    ),
)
"""Roles, each in its namespace."""

_AUTHENTICATED = group("system:authenticated")
_UNAUTHENTICATED = group("system:unauthenticated")

_ANONYMOUS = {"apiGroup": GROUP, "kind": "User", "name": "system:anonymous"}
_NODES = group(NODE_GROUP)
_NEW_NODES = group(BOOTSTRAP_NODE_GROUP)
_REQUESTS = "system:certificates.k8s.io:certificatesigningrequests"

BINDINGS_OF_NAMESPACES = (
    binding("kubeadm:bootstrap-signer-clusterinfo", _ANONYMOUS, namespace="kube-public"),
    binding("corral:network", _NODES, namespace="kube-system"),
    binding(
        "corral:nodes-read-authorities",
        _NODES,
        to="extension-apiserver-authentication-reader",
        namespace="kube-system",
    ),
)
"""Bindings, each in its namespace; all may read the address of the API server (as kubeadm)."""

BINDINGS = (
    binding("corral:node-bootstrapper", _NEW_NODES, _NODES, to="system:node-bootstrapper"),
    binding("corral:node-autoapprove-bootstrap", _NEW_NODES, to=f"{_REQUESTS}:nodeclient"),
    binding("corral:node-autoapprove-renewal", _NODES, to=f"{_REQUESTS}:selfnodeclient"),
    binding(
        "corral:kube-apiserver-kubelet-client",
        group(KUBELET_CLIENTS),
        to="system:kubelet-api-admin",
    ),
    binding("corral:node-images", _NODES, group(KUBELET_CLIENTS)),
    binding("corral:node-volumes", _NODES, group(KUBELET_CLIENTS)),
    binding("corral:node-migrations", _NODES, group(KUBELET_CLIENTS)),
    binding("corral:node-auth-delegator", _NODES, to="system:auth-delegator"),
    binding("cluster-admin", group("system:masters")),
    binding("system:basic-user", _AUTHENTICATED),
    binding("system:discovery", _AUTHENTICATED),
    binding("system:public-info-viewer", _AUTHENTICATED, _UNAUTHENTICATED),
    binding("system:monitoring", group("system:monitoring")),
    binding("system:service-account-issuer-discovery", group("system:serviceaccounts")),
    binding(
        "corral:prometheus",
        {"kind": SERVICE_ACCOUNT, "name": "prometheus", "namespace": "monitoring"},
        to="system:monitoring",
    ),
)
"""Bootstrap bindings; a Prometheus in its usual namespace may read ``/metrics``."""
