"""Authorization (Kubernetes' RBAC).

``attributes`` describe a request, ``policy_rules`` evaluate rules, ``roles`` index roles and
bindings, ``components`` are fixed rules of this process's components; ``authorizer`` combines them.
"""

from corral.server.authz.attributes import Attributes, forbidden, of_route
from corral.server.authz.authorizer import Authorizer

__all__ = ["Attributes", "Authorizer", "forbidden", "of_route"]
