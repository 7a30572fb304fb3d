"""UploadTokenRequest: asks for leave to bring a claim its content (upload.cdi.kubevirt.io)."""

from typing import ClassVar

import msgspec

from corral.api.object import Object, Struct

UPLOAD_GROUP = "upload.cdi.kubevirt.io"


class UploadTokenRequestSpec(Struct, kw_only=True):
    """Which claim is meant.

    pvc_name: a claim of the request's namespace.
    """

    pvc_name: str


class UploadTokenRequestStatus(Struct, kw_only=True):
    """The answer.

    token: what an upload has to bring, as Authorization: Bearer TOKEN.
    """

    token: str = ""


class UploadTokenRequest(Object, kw_only=True):
    """Asks for a token for an upload; it is answered and not kept.

    spec: which claim is meant.
    status: the answer.
    """

    api_version: ClassVar[str] = f"{UPLOAD_GROUP}/v1beta1"
    kind: ClassVar[str] = "UploadTokenRequest"

    spec: UploadTokenRequestSpec
    status: UploadTokenRequestStatus = msgspec.field(default_factory=UploadTokenRequestStatus)
