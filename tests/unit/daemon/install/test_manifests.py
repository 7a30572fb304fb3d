"""The manifests of an installation: complete and consistent."""

import re

import pytest

from corral.api import yaml
from corral.api.kind import at
from corral.api.kinds import KINDS
from corral.api.kinds.crd.builtin import has_definition
from corral.cli.manager.controllers import controllers
from corral.cli.manager.node import node
from corral.client import kubeconfig
from corral.daemon.install import manifests
from corral.daemon.install.options import CONTROLLERS, NODE, OURS, Options
from corral.server.extension.webhooks import mutates, validates
from corral.server.subresources.kubevirt.evacuation import WEBHOOK as EVICTIONS

OPTIONS = Options(namespace="elsewhere", image="images.example.com/corral:1")
DOCUMENTS = list(manifests.documents(OPTIONS))


def of_kind(name):
    return [each for each in DOCUMENTS if each["kind"] == name]


def one(kind, name):
    (found,) = (each for each in of_kind(kind) if each["metadata"]["name"] == name)
    return found


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_every_document_is_of_a_kind_and_carries_our_labels(document):
    group, _, version = document["apiVersion"].rpartition("/")
    kind = KINDS.by_kind(group, document["kind"])
    assert kind is not None
    assert version in kind.by_name
    assert OURS.items() <= document["metadata"]["labels"].items()
    assert kind.namespaced == ("namespace" in document["metadata"])


def test_names_are_unique():
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in DOCUMENTS
    ]
    assert len(names) == len(set(names))


def test_everything_namespaced_is_in_the_chosen_namespace():
    namespaces = {each["metadata"].get("namespace", "elsewhere") for each in DOCUMENTS}
    assert namespaces == {"elsewhere", "kube-system"}  # one RoleBinding has to be there
    assert "corral-system" not in "".join(map(yaml.dump, DOCUMENTS))


def test_the_namespace_is_first_and_webhooks_are_last():
    kinds = [each["kind"] for each in DOCUMENTS]
    assert kinds[0] == "Namespace"
    assert kinds[-2:] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]


def test_every_kind_of_operators_is_defined():
    defined = {each["metadata"]["name"] for each in of_kind("CustomResourceDefinition")}
    assert defined == {kind.resource for kind in KINDS if has_definition(kind)}


@pytest.mark.parametrize(
    ("configuration", "checks"),
    [("MutatingWebhookConfiguration", mutates), ("ValidatingWebhookConfiguration", validates)],
)
def test_each_kind_that_needs_them_has_its_webhooks(configuration, checks):
    (found,) = of_kind(configuration)
    operations = {}
    for webhook in found["webhooks"]:
        assert webhook["failurePolicy"] == "Fail"
        if webhook["name"] == EVICTIONS:
            continue
        assert webhook["sideEffects"] == "None"
        (rule,) = webhook["rules"]
        (resource,), (group,) = rule["resources"], rule["apiGroups"]
        operations.setdefault(f"{resource}.{group}", []).extend(rule["operations"])
    assert {name: sorted(each) for name, each in operations.items()} == {
        kind.resource: ["CREATE", "UPDATE"]
        for kind in KINDS
        if has_definition(kind) and checks(kind)
    }


def test_evictions_of_machines_alone_have_a_webhook():
    (found,) = of_kind("ValidatingWebhookConfiguration")
    (webhook,) = (each for each in found["webhooks"] if each["name"] == EVICTIONS)
    (rule,) = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods/eviction"], ["CREATE"])
    assert webhook["sideEffects"] == "NoneOnDryRun"
    (condition,) = webhook["matchConditions"]
    assert condition["expression"] == "object.metadata.name.startsWith('virt-launcher')"


@pytest.mark.parametrize(
    ("kind", "name", "command"),
    [("Deployment", CONTROLLERS, controllers), ("DaemonSet", NODE, node)],
)
def test_the_commands_of_pods_have_the_options_that_they_are_given(kind, name, command):
    (container,) = at(one(kind, name), "spec", "template", "spec", "containers")
    assert container["image"] == OPTIONS.image
    assert container["command"] == ["corral", command.name]
    known = {option for each in command.params for option in each.opts}
    given = [word for word in container["args"] if word.startswith("--")]
    assert given
    assert set(given) <= known


def test_the_service_leads_to_the_port_of_the_controllers():
    (port,) = at(one("Service", CONTROLLERS), "spec", "ports")
    template = at(one("Deployment", CONTROLLERS), "spec", "template")
    (container,) = template["spec"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [port["targetPort"]]
    assert template["metadata"]["labels"] == at(one("Service", CONTROLLERS), "spec", "selector")
    assert f"0.0.0.0:{port['targetPort']}" in container["args"]


def test_bindings_name_roles_and_accounts_that_are_there():
    """Roles that begin with ``system:`` or ``extension-`` are Kubernetes' own."""
    roles = {
        (each["kind"], each["metadata"]["name"]) for each in DOCUMENTS if "Role" in each["kind"]
    }
    accounts = {each["metadata"]["name"] for each in of_kind("ServiceAccount")}
    bindings = [*of_kind("ClusterRoleBinding"), *of_kind("RoleBinding")]
    assert bindings
    for binding in bindings:
        role = binding["roleRef"]
        own = not re.match(r"system:|extension-", role["name"])
        assert not own or (role["kind"], role["name"]) in roles
        for subject in binding["subjects"]:
            if subject["kind"] == "ServiceAccount":
                assert (subject["namespace"], subject["name"] in accounts) == ("elsewhere", True)


def test_requests_of_the_controllers_have_flow_schemas_of_their_account():
    levels = {}
    for schema in of_kind("FlowSchema"):
        (rule,) = schema["spec"]["rules"]
        (subject,) = rule["subjects"]
        assert subject["serviceAccount"] == {"name": CONTROLLERS, "namespace": "elsewhere"}
        (resources,) = rule["resourceRules"]
        levels[at(schema, "spec", "priorityLevelConfiguration", "name")] = resources["resources"]
    assert levels == {"leader-election": ["leases"], "workload-high": ["*"]}


def test_the_kubeconfig_of_the_pods_can_be_read(tmp_path):
    text = one("ConfigMap", "corral-kubeconfig")["data"]["kubeconfig"]
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_text(name)
    moved = text.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path))
    assert moved != text
    (tmp_path / "kubeconfig").write_text(moved)
    config = kubeconfig.load(tmp_path / "kubeconfig")
    assert config.server == "https://kubernetes.default.svc"
    assert config.headers["authorization"] == "Bearer token"
