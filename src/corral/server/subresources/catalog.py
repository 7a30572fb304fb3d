"""What is served below objects, beside ``status`` and ``scale``: the list that clients are told."""

from collections.abc import Iterator
from functools import partial

from lightkube.models import authentication_v1, core_v1, policy_v1

from corral.api.kinds.kubevirt.kinds import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from corral.api.subresources import Subresource
from corral.server.node_proxy import machines
from corral.server.subresources.kubevirt import (
    evacuation,
    expand_vm_spec,
    hotplug,
    virtual_machines,
)

_CONTAINER = {"container": "Which container; the machine's own where there is no other."}
_LOG = {
    **_CONTAINER,
    "follow": "true: go on as more is written.",
    "limitBytes": "How many bytes are told at most.",
    "sinceSeconds": "Only what was written in that many last seconds.",
    "sinceTime": "Only what was written from that moment on (RFC 3339).",
    "tailLines": "Only that many last lines.",
    "timestamps": "true: put before each line when it was written.",
}
_EXEC = {
    **_CONTAINER,
    "command": "A word of the command; once for each.",
    "stderr": "true: send what it writes to standard error.",
    "stdin": "true: it reads what is sent.",
    "stdout": "true: send what it writes.",
    "tty": "true is refused: the guest's agent has no terminal.",
}
_PORTS = {"ports": "Ports of the pod, with commas between."}
_core = partial(Subresource, group="", version="v1")


def _of_machines(version: str) -> Iterator[Subresource]:
    doors = {name: door.verb for name, door in machines.DOORS.items()}
    of_both = dict.fromkeys((*hotplug.SUBRESOURCES, evacuation.CANCEL), "update")
    for kind, own, options in (
        (VIRTUAL_MACHINE_INSTANCE, doors, machines.Options),
        (VIRTUAL_MACHINE, virtual_machines.verbs(), virtual_machines.Options),
    ):
        for name, verb in {**own, **of_both}.items():
            taken = hotplug.Options if name in hotplug.SUBRESOURCES else options
            yield Subresource(
                group=machines.GROUP,
                version=version,
                plural=kind.plural,
                name=name,
                response_kind=(machines.GROUP, version, kind.name),
                verbs=(verb,),
                request=taken if verb == "update" else None,
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
    *(each for version in machines.VERSIONS for each in _of_machines(version)),
)

NAMELESS = tuple(
    Subresource(
        group=machines.GROUP,
        version=version,
        plural=expand_vm_spec.NAME,
        name="",
        response_kind=(machines.GROUP, version, VIRTUAL_MACHINE.name),
        verbs=("update",),
    )
    for version in machines.VERSIONS
)
"""What discovery tells besides, though it is below no object."""
