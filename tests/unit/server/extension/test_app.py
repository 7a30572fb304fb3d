import pytest

from corral.server.extension.app import ExtensionApp


def named(name, seen):
    async def app(scope, receive, send):
        seen.append((name, scope["path"]))

    return app


@pytest.mark.parametrize(
    ("kind", "path", "name"),
    [
        ("http", "/admission/mutate", "webhooks"),
        ("http", "/admission/validate", "webhooks"),
        ("http", "/apis/subresources.kubevirt.io/v1", "api"),
        ("http", "/openapi/v3", "api"),
        ("websocket", "/apis/subresources.kubevirt.io/v1", "api"),
        ("websocket", "/healthz", "api"),
        ("http", "/healthz", "health"),
        ("http", "/admission", "health"),
    ],
)
async def test_each_path_has_its_app(kind, path, name):
    seen = []
    parts = {each: named(each, seen) for each in ("webhooks", "api", "health")}
    await ExtensionApp(**parts)({"type": kind, "path": path}, None, None)
    assert seen == [(name, path)]
