"""OpenAPI: what clients ask for before they create, apply, edit and explain.

Schemas of all kinds with everything they refer to, and the operations on them with the query
parameters that each takes: in v3 a document for each group and version, in v2 one for all.
kubectl looks a kind up by ``x-kubernetes-group-version-kind``, and leaves validation to a server
whose operations take ``fieldValidation``.
"""

from corral.api.openapi.documents import OpenAPI

__all__ = ["OpenAPI"]
