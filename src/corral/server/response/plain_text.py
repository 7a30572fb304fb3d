"""Responses in plain text."""

from corral.api.request import Response


def text_response(body: str, *, status: int = 200) -> Response:
    headers = [
        ("content-type", "text/plain; charset=utf-8"),
        ("cache-control", "no-cache, private"),
        ("x-content-type-options", "nosniff"),
    ]
    return Response(status=status, headers=headers, body=body.encode())


def not_found() -> Response:
    """Return kube-apiserver's response for an unknown path, which is no Status."""
    return text_response("404 page not found\n", status=404)
