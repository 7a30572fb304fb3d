"""OpenAPI documents: v3, one for each group and version, and v2, one for all.

They have the schemas of all kinds with everything they refer to, and the operations with their
parameters.  kubectl finds a kind by ``x-kubernetes-group-version-kind``, and leaves validation to a
server whose operations have the parameter ``fieldValidation``.
"""

from corral.api.openapi.documents import OpenAPI

__all__ = ["OpenAPI"]
