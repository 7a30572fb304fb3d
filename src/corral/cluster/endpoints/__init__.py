"""Who answers for each Service: Kubernetes' endpoint, endpointslice and mirroring controllers.

``members`` says which pods belong to a Service and how each is told of; ``slices`` packs them into
EndpointSlices, ``legacy`` into the older Endpoints object, and ``mirror`` turns Endpoints that
people write into slices.  All of these are pure; ``loop`` reads the caches and writes what changed.
"""

from corral.cluster.endpoints.loop import controller

__all__ = ["controller"]
