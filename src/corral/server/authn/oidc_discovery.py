"""OpenID Connect discovery: the public key by which others verify tokens of ServiceAccounts."""

from corral.api.encoding import encode
from corral.api.object import Document
from corral.api.request import Request, Response
from corral.pki import SigningKey
from corral.server.authn.service_accounts import ISSUER

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
PATHS = (CONFIGURATION, KEYS)
_CACHEABLE = ("cache-control", "public, max-age=3600")


def answer(key: SigningKey, request: Request) -> Response:
    """Return the document at one of PATHS; its URLs have the requested host."""
    if request.path.rstrip("/") == KEYS:
        return _document("application/jwk-set+json", {"keys": [key.public]})
    host = request.headers.get("host", "")
    configuration: Document = {
        "issuer": ISSUER,
        "jwks_uri": f"https://{host}{KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }
    return _document("application/json", configuration)


def _document(media_type: str, content: Document) -> Response:
    return Response(headers=[("content-type", media_type), _CACHEABLE], body=encode(content))
