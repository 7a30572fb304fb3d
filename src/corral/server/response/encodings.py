"""Answers in another encoding than JSON, in which all of them are made."""

from collections.abc import Callable
from functools import partial

from corral.api.request import Request, Response
from corral.server.flowcontrol.memory_budget import Budget
from corral.server.response.protobuf import ProtobufAnswers, in_protobuf
from corral.server.response.yaml import YamlAnswers, in_yaml

Recode = Callable[[Response], Response]
"""Puts what was written anew in the place of what was answered."""


class Encodings:
    """Writes the answers of one server; ``answers`` counts those that are on their way."""

    def __init__(self, answers: Budget) -> None:
        self._protobuf = ProtobufAnswers(answers)
        self._yaml = YamlAnswers(answers)

    async def recoded(
        self, request: Request, response: Response, deadline: float | None
    ) -> Recode | None:
        """How an answer is told in the encoding that its client wants; None where it is as it is.

        Raises NotAcceptable, TooManyRequests and Timeout.
        """
        message = await self._protobuf.message(request, response, deadline)
        if message is not None:
            return partial(in_protobuf, body=message)
        text = await self._yaml.text(request, response, deadline)
        return None if text is None else partial(in_yaml, text=text)
