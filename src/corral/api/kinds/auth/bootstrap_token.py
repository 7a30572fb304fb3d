"""Bootstrap tokens: Secrets of kube-system by which new nodes ask for their first certificate.

The format is Kubernetes' (kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens).
"""

import base64
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from corral.api.object import Document
from corral.api.time import parse_rfc3339, rfc3339

TYPE: Final = "bootstrap.kubernetes.io/token"
NAMESPACE: Final = "kube-system"
PREFIX: Final = "bootstrap-token-"
USER_PREFIX: Final = "system:bootstrap:"
GROUP: Final = "system:bootstrappers"
NODE_GROUP: Final = f"{GROUP}:corral:nodes"
"""The group of tokens that ``corral token create`` makes."""
_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})", re.ASCII)
_GROUP: Final = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]", re.ASCII)
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class BootstrapToken:
    """A token as its Secret holds it; ``expiration`` is None for one that never ends."""

    id: str
    secret: str
    groups: tuple[str, ...] = ()
    expiration: datetime | None = None
    authenticates: bool = False
    description: str = ""

    @property
    def value(self) -> str:
        """The token as it is given to a node: ``abcdef.0123456789abcdef``."""
        return f"{self.id}.{self.secret}"

    def has_expired(self, now: datetime) -> bool:
        """Report whether the token lets nobody in any more at ``now``."""
        return self.expiration is not None and self.expiration <= now

    def document(self) -> Document:
        """Return the Secret of a token."""
        data = {
            "token-id": self.id,
            "token-secret": self.secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": ",".join(self.groups),
        }
        if self.expiration is not None:
            data["expiration"] = rfc3339(self.expiration)
        if self.description:
            data["description"] = self.description
        return {
            "metadata": {"name": f"{PREFIX}{self.id}", "namespace": NAMESPACE},
            "type": TYPE,
            "stringData": data,
        }


def new_token(expiration: datetime | None, description: str = "") -> BootstrapToken:
    """Return a random token for nodes."""
    first, second = ("".join(secrets.choice(_LETTERS) for _ in range(size)) for size in (6, 16))
    return BootstrapToken(first, second, (NODE_GROUP,), expiration, True, description)  # noqa: FBT003


def parse(value: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token as nodes are given it; None for anything else."""
    found = _TOKEN.fullmatch(value)
    return (found[1], found[2]) if found else None


def read(name: str, data: Mapping[str, str] | None) -> BootstrapToken | None:
    """Return the token of a Secret with this name and data (base64); None if it is malformed.

    As in Kubernetes, a Secret counts only under the name of its id, and groups must begin with
    ``system:bootstrappers:``; an expiration that cannot be read counts as passed.
    """
    try:
        text = {
            key: base64.b64decode(value, validate=True).decode("utf-8", "replace")
            for key, value in (data or {}).items()
        }
    except ValueError:
        return None
    parsed = parse(f"{text.get('token-id', '')}.{text.get('token-secret', '')}")
    if parsed is None or name != f"{PREFIX}{parsed[0]}":
        return None
    groups = tuple(each for each in text.get("auth-extra-groups", "").split(",") if each)
    if not all(map(_GROUP.fullmatch, groups)):
        return None
    expiration = None
    if ends := text.get("expiration"):
        try:
            expiration = parse_rfc3339(ends)
        except ValueError:
            return None
    return BootstrapToken(
        id=parsed[0],
        secret=parsed[1],
        groups=groups,
        expiration=expiration,
        authenticates=text.get("usage-bootstrap-authentication") == "true",
        description=text.get("description", ""),
    )
