"""UploadTokenRequest: requests a token for an upload to a claim (upload.cdi.kubevirt.io)."""

from typing import ClassVar

import msgspec

from corral.api.object import Object, Struct

UPLOAD_GROUP = "upload.cdi.kubevirt.io"


class UploadTokenRequestSpec(Struct, kw_only=True):
    """The claim to upload to.

    pvc_name: a claim of the request's namespace.
    """

    pvc_name: str


class UploadTokenRequestStatus(Struct, kw_only=True):
    """The granted token.

    token: the token, for Authorization: Bearer TOKEN.
    """

    token: str = ""


class UploadTokenRequest(Object, kw_only=True):
    """A request for an upload token; it is answered and not stored.

    spec: the claim to upload to.
    status: the granted token.
    """

    api_version: ClassVar[str] = f"{UPLOAD_GROUP}/v1beta1"
    kind: ClassVar[str] = "UploadTokenRequest"

    spec: UploadTokenRequestSpec
    status: UploadTokenRequestStatus = msgspec.field(default_factory=UploadTokenRequestStatus)
