"""Error responses."""

from corral.api.encoding import encode
from corral.api.errors import ApiError
from corral.api.request import Response
from corral.server.node_proxy import vmi_subresources
from corral.server.request.call import JSON_HEADERS
from corral.server.response.plain_text import text_response


def error_response(error: ApiError) -> Response:
    """Return the response with an error's Status."""
    if isinstance(error, vmi_subresources.PlainError):
        return text_response(error.message, status=error.code)
    headers = [*JSON_HEADERS, ("x-content-type-options", "nosniff")]
    if error.details is not None and error.details.retry_after_seconds:
        headers.append(("retry-after", str(error.details.retry_after_seconds)))
    return Response(status=error.code, headers=headers, body=encode(error.status()))
