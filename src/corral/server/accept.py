"""What form of an answer a client accepts: plain, a Table, or metadata alone; in JSON or YAML."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import itemgetter

from corral.api.discovery import AGGREGATED_VERSIONS
from corral.api.errors import NotAcceptable


class Form(Enum):
    """The shapes in which the same objects are answered."""

    PLAIN = "plain"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


@dataclass(frozen=True, slots=True)
class Media:
    """One media range of an Accept header; of those that are known the most wanted counts."""

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
YAML = "application/yaml"
_TYPES = (*_JSON, YAML)
LONGEST = 1 << 10
"""Characters of a header that are looked at: browsers send 200, kubectl 250.  What anybody sends is
read on the loop, before it is known who it is, and kept."""
MOST_RANGES = 32
_ACCEPTED = "only the following media types are accepted: "


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What an Accept header says: its media ranges, and which form in which type they ask for.

    ``aggregated`` is the range that asks for aggregated discovery.
    """

    medias: tuple[Media, ...]
    aggregated: Media | None
    form: Form | None
    type: str = ""


def medias(header: str) -> tuple[Media, ...]:
    """The media ranges by how much each is wanted (``q``), then in the order of their standing.

    Of those that are wanted as much wildcards come last.
    """
    return _accepted(header).medias


def _accepted(header: str) -> _Accepted:
    """What a header says; of a long one only whole ranges at its beginning are looked at."""
    if len(header) > LONGEST:
        header = header[:LONGEST].rpartition(",")[0]
    return _read(header)


@lru_cache(maxsize=64)
def _read(header: str) -> _Accepted:
    found = []
    for part in header.split(",", MOST_RANGES)[:MOST_RANGES]:
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = tuple(
            (name.strip(), value.strip())
            for name, _, value in (piece.partition("=") for piece in parameters)
        )
        if kind and (weight := _weight(dict(pairs).get("q", ""))) > 0:
            found.append((-weight, *_wildcards(kind), Media(kind.lower(), pairs)))
    ordered = tuple(media for *_, media in sorted(found, key=itemgetter(0, 1, 2)))
    return _Accepted(ordered, _aggregated(ordered), *_chosen(header, ordered))


def _wildcards(kind: str) -> tuple[bool, bool]:
    main, _, sub = kind.partition("/")
    return main == "*", sub == "*"


def _weight(text: str) -> float:
    """How much a range is wanted; who says it wrongly wants it as who says nothing."""
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0


def form(header: str) -> Form:
    """The form to answer in.  Raises NotAcceptable."""
    chosen = _accepted(header).form
    if chosen is None:
        raise NotAcceptable(f"{_ACCEPTED}application/json, application/yaml")
    return chosen


def wants_yaml(header: str) -> bool:
    """Whether an answer is to be in YAML."""
    return _accepted(header).type == YAML


def aggregated(header: str) -> Media | None:
    """The media range that asks for aggregated discovery; None where it is wanted as it was."""
    return _accepted(header).aggregated


def takes_json(header: str) -> bool:
    """Whether JSON would do, too."""
    accepted = _accepted(header)
    return accepted.type in _JSON or any(media.type in _JSON for media in accepted.medias)


def require_stream(header: str) -> None:
    """Raises NotAcceptable for who wants a stream of what is none: that is only JSON."""
    if not takes_json(header):
        raise NotAcceptable(f"{_ACCEPTED}application/json, application/json;stream=watch")


def _chosen(header: str, ordered: tuple[Media, ...]) -> tuple[Form | None, str]:
    """The form of an answer, and the type in which it is written."""
    if not header:
        return Form.PLAIN, _JSON[0]
    for media in ordered:
        asked = _FORMS.get(media.get("as"))
        if media.type in _TYPES and asked is not None and _version_is_known(media):
            return asked, media.type
    return None, ""


def _aggregated(ordered: tuple[Media, ...]) -> Media | None:
    known = (media for media in ordered if media.type in _TYPES)
    asked = (media for media in known if not media.get("as") or _is_aggregated(media))
    first = next(asked, None)
    return first if first is not None and first.get("as") else None


def _is_aggregated(media: Media) -> bool:
    return (
        media.get("as") == "APIGroupDiscoveryList"
        and media.get("g") == "apidiscovery.k8s.io"
        and media.get("v") in AGGREGATED_VERSIONS
    )


def _version_is_known(media: Media) -> bool:
    return not media.get("as") or (
        media.get("g") == "meta.k8s.io" and media.get("v") in ("v1", "v1beta1")
    )
