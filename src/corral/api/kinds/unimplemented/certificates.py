"""Whom pods trust, and certificates of their own that they ask for (certificates.k8s.io)."""

from collections.abc import Iterator
from typing import Final

from lightkube.models.certificates_v1 import ClusterTrustBundle, PodCertificateRequest

from corral.api.errors import Cause
from corral.api.kind import Column, at
from corral.api.kinds.causes import required
from corral.api.kinds.columns import condition_status, field
from corral.api.kinds.unimplemented.row import unimplemented
from corral.api.object import Document

_V1: Final = "certificates.k8s.io/v1"
_OUTCOMES: Final = ("Denied", "Failed", "Issued")


def _state(document: Document) -> str:
    """What has become of a request, as Kubernetes prints it."""
    found = (each for each in _OUTCOMES if condition_status(document, each) == "True")
    return next(found, "Pending")


def _annotations(document: Document) -> str:
    told = at(document, "spec", "unverifiedUserAnnotations") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(told.items()))


def _bundle_causes(document: Document) -> Iterator[Cause]:
    if not document["spec"]["trustBundle"]:
        yield required("spec.trustBundle")


KINDS = (
    unimplemented(
        ClusterTrustBundle,
        "clustertrustbundles",
        _V1,
        field("SignerName", "spec", "signerName", description="whose certificates are trusted"),
        why="corral gives machines no bundles of authorities",
        causes=_bundle_causes,
    ),
    unimplemented(
        PodCertificateRequest,
        "podcertificaterequests",
        _V1,
        field("PodName", "spec", "podName", description="who asks"),
        field("ServiceAccountName", "spec", "serviceAccountName", description="as whom"),
        field("NodeName", "spec", "nodeName", description="where the pod runs"),
        field("SignerName", "spec", "signerName", description="who shall sign"),
        Column(name="State", cell=_state, description="what has become of the request"),
        Column(
            name="UnverifiedUserAnnotations",
            cell=_annotations,
            description="what the pod tells the signer",
        ),
        why="corral signs no certificates of pods",
        namespaced=True,
        status=True,
    ),
)
