"""Re-encoding of JSON responses as protobuf or YAML."""

from collections.abc import Callable
from functools import partial

from corral.api.request import Request, Response
from corral.server.flowcontrol.memory_budget import Budget
from corral.server.response.protobuf import ProtobufEncoder, in_protobuf
from corral.server.response.yaml import YamlEncoder, in_yaml

Recode = Callable[[Response], Response]
"""Replaces the body of a response by the re-encoded one."""


class Encodings:
    """The encoders of a server; ``responses`` is the memory budget of responses being sent."""

    def __init__(self, responses: Budget) -> None:
        self._protobuf = ProtobufEncoder(responses)
        self._yaml = YamlEncoder(responses)

    async def recoded(
        self, request: Request, response: Response, deadline: float | None
    ) -> Recode | None:
        """Return a function that re-encodes a response for its client; None if it stays JSON.

        Raises NotAcceptable, TooManyRequests and Timeout.
        """
        message = await self._protobuf.message(request, response, deadline)
        if message is not None:
            return partial(in_protobuf, body=message)
        text = await self._yaml.text(request, response, deadline)
        return None if text is None else partial(in_yaml, text=text)
