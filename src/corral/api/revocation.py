"""Where it is written whose certificates are good no more.

``corral kubeconfig --revoke`` writes it and the server reads it
(``corral.server.authn.revocations``).
"""

from typing import Final

from corral.api.object import Key

MAP: Final = Key("kube-system", "revoked-certificates")
"""A ConfigMap."""
USERS: Final = "users.json"
"""The map's entry: a JSON object from users' names to times in RFC 3339."""
