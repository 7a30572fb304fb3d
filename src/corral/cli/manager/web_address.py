"""The address of a web server, as an option of a command."""

from typing import Any
from urllib.parse import urlsplit

import click


class Web(click.ParamType[str]):
    """``http://HOST:PORT/PATH`` or ``https://…``; without credentials, and without a query."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text:
            return text
        try:
            parts = urlsplit(text)
            host, _ = parts.hostname, parts.port  # the port is read, and checked, only when asked
        except ValueError as error:
            self.fail(f"{text!r}: {error}", param, ctx)
        if parts.scheme not in ("http", "https") or not host or not text.isprintable():
            self.fail(f"{text!r}: must be http://HOST:PORT or https://HOST:PORT", param, ctx)
        if parts.username is not None or parts.password is not None:
            self.fail(
                "a user and a password in the URL would be seen by everybody on this host; let a "
                "proxy add them",
                param,
                ctx,
            )
        if parts.query or parts.fragment or " " in text:
            self.fail(f"{text!r}: must end with its path", param, ctx)
        return text.rstrip("/")
