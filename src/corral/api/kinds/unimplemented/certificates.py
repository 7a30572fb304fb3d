"""ClusterTrustBundle and PodCertificateRequest (certificates.k8s.io)."""

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
    """Return the state of a request, as Kubernetes prints it."""
    states = (each for each in _OUTCOMES if condition_status(document, each) == "True")
    return next(states, "Pending")


def _annotations(document: Document) -> str:
    annotations = at(document, "spec", "unverifiedUserAnnotations") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(annotations.items()))


def _check_bundle(document: Document) -> Iterator[Cause]:
    if not document["spec"]["trustBundle"]:
        yield required("spec.trustBundle")


KINDS = (
    unimplemented(
        ClusterTrustBundle,
        "clustertrustbundles",
        _V1,
        field("SignerName", "spec", "signerName", description="the signer"),
        why="corral gives machines no bundles of authorities",
        causes=_check_bundle,
    ),
    unimplemented(
        PodCertificateRequest,
        "podcertificaterequests",
        _V1,
        field("PodName", "spec", "podName", description="the pod"),
        field("ServiceAccountName", "spec", "serviceAccountName", description="its ServiceAccount"),
        field("NodeName", "spec", "nodeName", description="its node"),
        field("SignerName", "spec", "signerName", description="the signer"),
        Column(name="State", cell=_state, description="state of the request"),
        Column(
            name="UnverifiedUserAnnotations",
            cell=_annotations,
            description="annotations for the signer",
        ),
        why="corral signs no certificates of pods",
        namespaced=True,
        status=True,
    ),
)
