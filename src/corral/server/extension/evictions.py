"""The webhook of evictions: a VMI that is to migrate is marked, and the eviction refused.

Clients such as ``kubectl drain`` retry until the machine has left its node
(KubeVirt's pod-eviction-admitter.go).
"""

from corral.api.errors import BadRequest
from corral.api.kinds.core.pod import POD
from corral.api.request import Request, User
from corral.server.extension import admission_review
from corral.server.extension.admission_review import AdmissionRequest
from corral.server.extension.remote_objects import RemoteRest
from corral.server.request.call import Call, storage
from corral.server.subresources.kubevirt import evacuation


def call_of(request: AdmissionRequest) -> Call:
    """Return the call under review.  Raises BadRequest for one that is no eviction of a pod."""
    if (request.kind.kind, request.sub_resource) != ("Eviction", "eviction"):
        raise BadRequest(
            f"this webhook is for evictions of pods, not for {request.kind.kind} in "
            f"{request.kind.group}/{request.kind.version}"
        )
    return Call(
        request=Request(method="POST", path=""),
        user=User(name=request.user_info.username, groups=request.user_info.groups),
        verb="create",
        kind=POD,
        group=POD.group,
        version=POD.versions[0],
        namespace=request.namespace,
        name=request.name,
        subresource=request.sub_resource,
        query={"dryRun": "All"} if _is_dry_run(request) else {},
    )


async def review(rest: RemoteRest, call: Call, request: AdmissionRequest) -> bytes:
    """Return the response to the review of an eviction.  Raises TooManyRequests to refuse it.

    Where a set replaces after another one is ready, its VMI is marked also if the pod may be
    evicted: whether a PodDisruptionBudget forbids that, the API server finds out only afterwards.
    """
    record = rest.store.latest(storage(POD), call.key)
    if record is None:
        return admission_review.allowed(request.uid)
    pod = record.document()
    denied = await evacuation.denial(rest, call, pod, request.object or {})
    marked = denied.marked if denied else await evacuation.requested_replacement(rest, call, pod)
    if not call.query:
        await evacuation.store_marked(rest, call, marked)
    if denied is not None:
        raise denied.error()
    return admission_review.allowed(request.uid)


def _is_dry_run(request: AdmissionRequest) -> bool:
    options = (request.object or {}).get("deleteOptions") or {}
    return request.dry_run or "All" in (options.get("dryRun") or ())
