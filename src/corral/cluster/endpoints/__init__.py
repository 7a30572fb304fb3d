"""Controllers of endpoints of Services: Endpoints, EndpointSlices, mirroring.

``members`` selects the pods of a Service and describes each; ``slices`` packs them into
EndpointSlices, ``endpoints_object`` into the older Endpoints object, and ``mirror`` copies
Endpoints that users write into slices. All of these are pure; ``endpoints_controller`` reads the
caches and writes what changed.
"""

from corral.cluster.endpoints.endpoints_controller import controller

__all__ = ["controller"]
