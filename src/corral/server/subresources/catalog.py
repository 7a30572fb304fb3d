"""List of the subresources that discovery and OpenAPI show, beside ``status`` and ``scale``."""

from collections.abc import Iterator
from functools import partial

from lightkube.models import authentication_v1, core_v1, policy_v1

from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from corral.api.subresources import Subresource
from corral.server.node_proxy import vmi_subresources
from corral.server.subresources.kubevirt import (
    evacuation,
    expand_vm_spec,
    hotplug,
    virtual_machines,
)

_CONTAINER = {"container": "Name of the container; may be left out where the pod has only one."}
_LOG = {
    **_CONTAINER,
    "follow": "true: keep the stream open and send new output.",
    "limitBytes": "Maximum number of bytes to send.",
    "sinceSeconds": "Send only output of the last so many seconds.",
    "sinceTime": "Send only output since this time (RFC 3339).",
    "tailLines": "Send only the last so many lines.",
    "timestamps": "true: begin each line with its time.",
}
_EXEC = {
    **_CONTAINER,
    "command": "A word of the command; repeat it for each.",
    "stderr": "true: send the command's standard error.",
    "stdin": "true: pass what the client sends to the command's standard input.",
    "stdout": "true: send the command's standard output.",
    "tty": "true is refused: the guest agent has no terminal.",
}
_PORTS = {"ports": "Ports of the pod, separated by commas."}
_core = partial(Subresource, group="", version="v1")


def _of_kubevirt(version: str) -> Iterator[Subresource]:
    of_vmis = {
        name: subresource.verb for name, subresource in vmi_subresources.SUBRESOURCES.items()
    }
    of_both = dict.fromkeys((*hotplug.SUBRESOURCES, evacuation.CANCEL), "update")
    for kind, own, options in (
        (VIRTUAL_MACHINE_INSTANCE, of_vmis, vmi_subresources.Options),
        (VIRTUAL_MACHINE, virtual_machines.verbs(), virtual_machines.Options),
    ):
        for name, verb in {**own, **of_both}.items():
            request = hotplug.Options if name in hotplug.SUBRESOURCES else options
            yield Subresource(
                group=vmi_subresources.GROUP,
                version=version,
                plural=kind.plural,
                name=name,
                response_kind=(vmi_subresources.GROUP, version, kind.name),
                verbs=(verb,),
                request=request if verb == "update" else None,
                path_parameters=("port", "protocol") if name == "portforward" else (),
            )


SUBRESOURCES = (
    _core(
        plural="namespaces",
        name="finalize",
        response_kind=("", "v1", "Namespace"),
        verbs=("update",),
        namespaced=False,
        request=core_v1.Namespace,
        response=core_v1.Namespace,
    ),
    *(
        _core(
            plural=plural,
            name=name,
            response_kind=(group, "v1", view.__name__),
            verbs=("create",),
            request=view,
            response=view,
        )
        for plural, name, group, view in (
            ("pods", "binding", "", core_v1.Binding),
            ("pods", "eviction", "policy", policy_v1.Eviction),
            ("serviceaccounts", "token", "authentication.k8s.io", authentication_v1.TokenRequest),
        )
    ),
    _core(plural="pods", name="log", response_kind=("", "v1", "Pod"), query=_LOG),
    _core(
        plural="nodes",
        name="proxy",
        response_kind=("", "v1", "NodeProxyOptions"),
        namespaced=False,
        path_parameters=("path",),
    ),
    *(
        _core(
            plural="pods",
            name=name,
            response_kind=("", "v1", f"Pod{options}Options"),
            verbs=("create", "get"),
            query=query,
        )
        for name, options, query in (
            ("exec", "Exec", _EXEC),
            ("portforward", "PortForward", _PORTS),
        )
    ),
    *(each for version in vmi_subresources.VERSIONS for each in _of_kubevirt(version)),
)

NAMELESS = tuple(
    Subresource(
        group=vmi_subresources.GROUP,
        version=version,
        plural=expand_vm_spec.NAME,
        name="",
        response_kind=(vmi_subresources.GROUP, version, VIRTUAL_MACHINE.name),
        verbs=("update",),
    )
    for version in vmi_subresources.VERSIONS
)
"""Paths that discovery lists as resources, though no object is above them."""
