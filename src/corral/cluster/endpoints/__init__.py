"""Who answers for each Service: Kubernetes' endpoint, endpointslice and mirroring controllers.

``members`` says which pods belong to a Service and how each is told of; ``slices`` packs them into
EndpointSlices, ``endpoints_object`` into the older Endpoints object, and ``mirror`` turns Endpoints
that people write into slices.  All of these are pure; ``endpoints_controller`` reads the caches and
writes what changed.
"""

from corral.cluster.endpoints.endpoints_controller import controller

__all__ = ["controller"]
