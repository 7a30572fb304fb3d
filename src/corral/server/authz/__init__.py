"""Authorization: who may do what (Kubernetes' RBAC).

``attributes`` says what is wanted, ``policy_rules`` what a role allows, ``roles`` who has which
roles, ``components`` what this process' own parts may do besides; ``authorizer`` puts them
together.
"""

from corral.server.authz.attributes import Attributes, forbidden, of_route
from corral.server.authz.authorizer import Authorizer

__all__ = ["Attributes", "Authorizer", "forbidden", "of_route"]
