"""Ingress and IngressClass: routing of HTTP requests to Services.

Nothing here routes requests; the objects are stored for the sake of charts, with a warning.
"""

from collections.abc import Iterator
from typing import Any, Final

from lightkube.models.networking_v1 import Ingress, IngressClass

from corral.api.addresses import parse_address, port_faults, port_name_faults
from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import each_invalid, forbidden, invalid, required, unsupported
from corral.api.kinds.columns import NONE, age, few, field
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.names import label_key_faults, service_name_faults, subdomain_faults
from corral.api.object import Document

PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
UNROUTED: Final = (
    "corral routes no HTTP: nothing acts on this {}; a Service of type NodePort or LoadBalancer "
    "is reached from outside"
)


def _validate(document: Document, _old: Document | None, _user: str) -> Verdict:
    causes = limited(_check_spec(document.get("spec") or {}))
    return Verdict(causes, [UNROUTED.format("Ingress")])


def _check_spec(spec: Document) -> Iterator[Cause]:
    rules, fallback = spec.get("rules") or [], spec.get("defaultBackend")
    if not rules and fallback is None:
        why = "either `defaultBackend` or `rules` must be specified"
        yield invalid("spec", rules, why)
    if fallback is not None:
        yield from _check_backend("spec.defaultBackend", fallback)
    if name := spec.get("ingressClassName"):
        yield from each_invalid("spec.ingressClassName", name, subdomain_faults(name))
    for index, rule in enumerate(rules):
        yield from _check_rule(f"spec.rules[{index}]", rule)
    for index, certificate in enumerate(spec.get("tls") or ()):
        for place, host in enumerate(certificate.get("hosts") or ()):
            faults = subdomain_faults(host.removeprefix("*."))
            yield from each_invalid(f"spec.tls[{index}].hosts[{place}]", host, faults)


def _check_rule(path: str, rule: Document) -> Iterator[Cause]:
    host = rule.get("host") or ""
    if parse_address(host) is not None:
        yield invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
    elif host:
        yield from each_invalid(f"{path}.host", host, subdomain_faults(host.removeprefix("*.")))
    if (http := rule.get("http")) is None:
        return
    if not http["paths"]:
        yield required(f"{path}.http.paths")
    for index, each in enumerate(http["paths"]):
        yield from _check_path(f"{path}.http.paths[{index}]", each)


def _check_path(where: str, each: Document) -> Iterator[Cause]:
    path, path_type = each.get("path") or "", each["pathType"]
    if path_type not in PATH_TYPES:
        yield unsupported(f"{where}.pathType", path_type, PATH_TYPES)
    elif (path or path_type != "ImplementationSpecific") and not path.startswith("/"):
        yield invalid(f"{where}.path", path, "must be an absolute path")
    yield from _check_backend(f"{where}.backend", each["backend"])


def _check_backend(path: str, backend: Document) -> Iterator[Cause]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif service is None and resource is None:
        yield invalid(path, "", "resource or service backend is required")
    elif service is not None:
        yield from _check_service(f"{path}.service", service)


def _check_service(path: str, service: Document) -> Iterator[Cause]:
    name, port = service["name"], service.get("port") or {}
    yield from each_invalid(f"{path}.name", name, service_name_faults(name))
    if port.get("name") and port.get("number"):
        yield invalid(path, "", "cannot set both port name & port number")
    elif port.get("name"):
        yield from each_invalid(f"{path}.port.name", port["name"], port_name_faults(port["name"]))
    elif port.get("number"):
        faults = port_faults(port["number"])
        yield from each_invalid(f"{path}.port.number", port["number"], faults)
    else:
        yield required(path, "port name or number is required")


def _hosts(document: Document) -> str:
    hosts = [rule.get("host") or "" for rule in at(document, "spec", "rules") or ()]
    return few([host for host in hosts if host]) or "*"


def _address(document: Document) -> str:
    ingresses: list[dict[str, Any]] = at(document, "status", "loadBalancer", "ingress") or []
    return ",".join(str(each.get("ip") or each.get("hostname") or "") for each in ingresses)


INGRESS = kubernetes_kind(
    group="networking.k8s.io",
    plural="ingresses",
    short=("ing",),
    view=Ingress,
    columns=(
        Column(
            name="Class",
            cell=lambda document: at(document, "spec", "ingressClassName") or NONE,
            description="the class that routes its requests",
        ),
        Column(name="Hosts", cell=_hosts, description="hosts of its rules"),
        Column(name="Address", cell=_address, description="addresses of its load balancer"),
        Column(
            name="Ports",
            cell=lambda document: "80, 443" if at(document, "spec", "tls") else "80",
            description="ports of its load balancer",
        ),
        age(),
    ),
    validate=_validate,
)


def _class_default(document: Document) -> None:
    if parameters := at(document, "spec", "parameters"):
        parameters.setdefault("scope", "Cluster")


def _class_validate(document: Document, old: Document | None, _user: str) -> Verdict:
    causes = limited(_check_class(document, old))
    return Verdict(causes, [UNROUTED.format("IngressClass")])


def _check_class(document: Document, old: Document | None) -> Iterator[Cause]:
    controller = at(document, "spec", "controller") or ""
    if old is not None and controller != (at(old, "spec", "controller") or ""):
        yield invalid("spec.controller", controller, "field is immutable")
    if not controller:
        yield required("spec.controller")
    elif "/" not in controller or label_key_faults(controller.lower()):
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield invalid("spec.controller", controller, why)
    parameters, path = at(document, "spec", "parameters"), "spec.parameters"
    if not parameters:
        return
    scope, namespace = parameters["scope"], parameters.get("namespace")
    if scope not in ("Cluster", "Namespace"):
        yield unsupported(f"{path}.scope", scope, ("Cluster", "Namespace"))
    elif scope == "Namespace" and not namespace:
        yield required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
    elif scope == "Cluster" and namespace:
        yield forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")


def _parameters(document: Document) -> str:
    parameters = at(document, "spec", "parameters")
    if not parameters:
        return NONE
    group = parameters.get("apiGroup")
    return f"{parameters['kind']}{f'.{group}' if group else ''}/{parameters['name']}"


INGRESS_CLASS = kubernetes_kind(
    group="networking.k8s.io",
    plural="ingressclasses",
    view=IngressClass,
    namespaced=False,
    status=False,
    columns=(
        field("Controller", "spec", "controller", description="the controller of the class"),
        Column(name="Parameters", cell=_parameters, description="its parameters"),
        age(),
    ),
    default=_class_default,
    validate=_class_validate,
)
