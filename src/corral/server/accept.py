"""What form of an answer a client accepts: plain JSON, a Table, or metadata alone."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from corral.api.errors import NotAcceptable


class Form(Enum):
    """The shapes in which the same objects are answered."""

    PLAIN = "plain"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


@dataclass(frozen=True, slots=True)
class Media:
    """One media range of an Accept header; of several, the first that is known counts."""

    type: str
    parameters: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        return dict(self.parameters).get(name, "")


_FORMS = {
    "": Form.PLAIN,
    "Table": Form.TABLE,
    "PartialObjectMetadata": Form.METADATA,
    "PartialObjectMetadataList": Form.METADATA,
}
_JSON = ("application/json", "application/*", "*/*")


@lru_cache(maxsize=256)
def medias(header: str) -> tuple[Media, ...]:
    """The media ranges in the order in which they stand, which clients mean as preference."""
    found = []
    for part in header.split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = tuple(
            (name.strip(), value.strip())
            for name, _, value in (piece.partition("=") for piece in parameters)
        )
        if kind:
            found.append(Media(kind.lower(), pairs))
    return tuple(found)


@lru_cache(maxsize=256)
def form(header: str) -> Form:
    """The form to answer in.  Raises NotAcceptable."""
    if not header:
        return Form.PLAIN
    for media in medias(header):
        asked = _FORMS.get(media.get("as"))
        if media.type in _JSON and asked is not None and _version_is_known(media):
            return asked
    raise NotAcceptable(
        "only the following media types are accepted: application/json, "
        "application/json;stream=watch"
    )


def _version_is_known(media: Media) -> bool:
    return not media.get("as") or (
        media.get("g") == "meta.k8s.io" and media.get("v") in ("v1", "v1beta1")
    )
