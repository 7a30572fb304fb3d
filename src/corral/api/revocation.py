"""The ConfigMap of revoked client certificates.

``corral kubeconfig --revoke`` writes it, and the server reads it
(``corral.server.authn.revocations``).
"""

from typing import Final

from corral.api.object import Key

MAP: Final = Key("kube-system", "revoked-certificates")
USERS: Final = "users.json"
"""The key with a JSON object of names of users to times in RFC 3339."""
