"""Targets of commands: virtctl's ``TYPE/NAME[/NAMESPACE]``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from corral.cli.errors import Problem

PLURALS: Final = {"vmi": "virtualmachineinstances", "vm": "virtualmachines"}
HINT: Final = "Write vmi/NAME or vmi/NAME/NAMESPACE."

_KINDS: Final = {
    alias: kind
    for kind, plural in PLURALS.items()
    for alias in (kind, f"{kind}s", plural.removesuffix("s"), plural)
}


@dataclass(frozen=True, slots=True)
class Target:
    """A VirtualMachineInstance or VirtualMachine; ``kind`` is ``vmi`` or ``vm``."""

    kind: str
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}/{self.namespace}"

    @property
    def own_path(self) -> str:
        """The path of the object."""
        return f"/apis/kubevirt.io/v1/{self._place}"

    def path(self, subresource: str) -> str:
        """Return the path of a subresource."""
        return f"/apis/subresources.kubevirt.io/v1/{self._place}/{subresource}"

    @property
    def _place(self) -> str:
        namespace, name = quote(self.namespace, safe=""), quote(self.name, safe="")
        return f"namespaces/{namespace}/{PLURALS[self.kind]}/{name}"


def kind_of(text: str, hint: str = "Write vmi or vm.") -> str:
    """Return ``vmi`` or ``vm`` for any of their names.  Raises Problem."""
    kind = _KINDS.get(text.lower())
    if kind is None:
        raise Problem(f"unsupported resource type '{text}'", hint)
    return kind


def parse_target(text: str, namespace: str) -> Target:
    """Parse ``TYPE/NAME[/NAMESPACE]``.  Raises Problem.

    Accepts ``TYPE.NAME[.NAMESPACE]``, too, since host names of ssh have no slashes:
    ``ProxyCommand corral port-forward --stdio=true %h %p`` works in ssh_config.
    """
    if not text:
        raise Problem("target cannot be empty", HINT)
    parts = text.split("/")
    if len(parts) == 1 and text.partition(".")[0].lower() in _KINDS:
        parts = _dotted(text)
    match parts:
        case [_]:
            raise Problem("target must contain type and name separated by '/'", HINT)
        case [_, _, ""]:
            raise Problem("namespace cannot be empty", HINT)
        case [kind, name]:
            return _target(kind, name, namespace)
        case [kind, name, other]:
            return _target(kind, name, other)
    raise Problem("target is not valid with more than two '/'", HINT)


def vmi_target(text: str, namespace: str) -> Target:
    """Parse ``NAME`` or ``TYPE/NAME[/NAMESPACE]`` as a VMI.  Raises Problem.

    The VMI of a VirtualMachine has the same name.
    """
    found = parse_target(text, namespace) if "/" in text else _target("vmi", text, namespace)
    return Target("vmi", found.name, found.namespace)


def vm_target(words: Sequence[str], namespace: str) -> Target:
    """Parse ``NAME``, ``vm NAME`` or ``vm/NAME[/NAMESPACE]`` as a VM.  Raises Problem."""
    match words:
        case [text] if "/" in text:
            found = parse_target(text, namespace)
        case [name]:
            return _target("vm", name, namespace)
        case [kind, name]:
            found = _target(kind, name, namespace)
        case _:
            raise Problem(f"accepts 1 arg(s), received {len(words)}", "Write one NAME, or vm NAME.")
    if found.kind != "vm":
        raise Problem(
            f"{found.kind} {found.name} is no VirtualMachine: it runs once, from its start on",
            "kubectl delete vmi NAME ends it.",
        )
    return found


def _dotted(text: str) -> list[str]:
    kind, _, rest = text.partition(".")
    name, dot, namespace = rest.rpartition(".")
    return [kind, name, namespace] if dot else [kind, rest]


def _target(kind: str, name: str, namespace: str) -> Target:
    found = kind_of(kind, HINT)
    if not name:
        raise Problem("name cannot be empty", HINT)
    return Target(found, name, namespace)
