"""What form of an answer a client accepts: plain, a Table, or metadata alone; and in what encoding.

That is JSON, as everything is kept; YAML; or protobuf, which kinds of Kubernetes have, and metadata
of all.  Protobuf is written for who wants it more than JSON, or takes no JSON: who takes both, as
typed clients do, is told what is there already: metadata, if that is the form in protobuf.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

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
PROTOBUF = "application/vnd.kubernetes.protobuf"
_TYPES = (*_JSON, YAML)
LONGEST = 1 << 10
"""Characters of a header that are looked at: browsers send 200, kubectl 250.  What anybody sends is
read on the loop, before it is known who it is, and kept."""
MOST_RANGES = 32
_ACCEPTED = "only the following media types are accepted: "
_STREAM = ";stream=watch"


class _Choice(NamedTuple):
    """A form, the type in which it is written, its version, and how much that is wanted."""

    form: Form | None
    type: str
    version: str
    weight: float


@dataclass(frozen=True, slots=True)
class _Accepted:
    """What an Accept header says: its media ranges, and which form in which type they ask for.

    ``version`` is that of the form, ``aggregated`` the range that asks for aggregated discovery.
    ``protobuf`` is the form that is wanted in protobuf, if any is; ``metadata`` says that metadata
    is, of kinds that have no such form themselves.
    """

    medias: tuple[Media, ...]
    aggregated: Media | None
    form: Form | None
    type: str = ""
    version: str = "v1"
    protobuf: Form | None = None
    metadata: bool = False


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
    ranked = [(-each[0], each[3]) for each in sorted(found, key=itemgetter(0, 1, 2))]
    ordered = tuple(media for _, media in ranked)
    form, kind, version, weight = _chosen(header, ranked)
    messages = [asked for more, asked in _messages(ranked) if more > weight]
    return _Accepted(
        ordered,
        _aggregated(ordered),
        form,
        kind,
        version,
        protobuf=messages[0] if messages else None,
        metadata=Form.METADATA in messages,
    )


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


def form(header: str, *, native: bool = False) -> Form:
    """The form to answer in; ``native`` kinds can be told in protobuf.  Raises NotAcceptable."""
    if wants_protobuf(header, native=native):
        return _accepted(header).protobuf or Form.METADATA if native else Form.METADATA
    chosen = _accepted(header).form
    if chosen is None:
        raise NotAcceptable(f"{_ACCEPTED}application/json, {YAML}, {PROTOBUF}")
    return chosen


def wants_protobuf(header: str, *, native: bool = True) -> bool:
    """Whether an answer is to be in protobuf, as far as there is such a form of it."""
    if "protobuf" not in header.lower():
        return False
    accepted = _accepted(header)
    return accepted.protobuf is not None if native else accepted.metadata


def form_version(header: str) -> str:
    """The ``apiVersion`` of a form that is not plain."""
    return f"meta.k8s.io/{_accepted(header).version}"


def require_untabled(header: str) -> None:
    """Raises NotAcceptable for who wants nothing but a Table of what has none."""
    accepted = _accepted(header)
    if accepted.form is Form.TABLE:
        others = [(1.0, media) for media in accepted.medias if media.get("as") != "Table"]
        if _chosen(header, others).form is None and accepted.protobuf is None:
            raise NotAcceptable(f"{_ACCEPTED}application/json, {YAML}, {PROTOBUF}")


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


def require_stream(header: str, *, native: bool) -> None:
    """Raises NotAcceptable for who wants a stream of what is none: that is JSON and protobuf."""
    if not takes_json(header) and not wants_protobuf(header, native=native):
        streams = f"application/json{_STREAM}, {PROTOBUF}{_STREAM}"
        raise NotAcceptable(f"{_ACCEPTED}application/json, {streams}")


def _chosen(header: str, ranked: Sequence[tuple[float, Media]]) -> _Choice:
    """The form in which to answer."""
    if not header:
        return _Choice(Form.PLAIN, _JSON[0], "v1", 1.0)
    messages: dict[float, Media] = {}
    for weight, media in ranked:
        asked = _FORMS.get(media.get("as"))
        if asked is None or not _version_is_known(media):
            continue
        if media.type == PROTOBUF and asked is not Form.TABLE:
            messages.setdefault(weight, media)
        elif media.type in _TYPES:
            # What is told in JSON though protobuf came first is not more than was wanted first.
            first = messages.get(weight, media)
            told = first if _FORMS[first.get("as")] is Form.METADATA else media
            return _Choice(_FORMS[told.get("as")], media.type, told.get("v") or "v1", weight)
    return _Choice(None, "", "v1", 0.0)


def _messages(ranked: Sequence[tuple[float, Media]]) -> Iterator[tuple[float, Form]]:
    """The forms that are wanted in protobuf, and how much; Tables have no such form."""
    for weight, media in ranked:
        asked = _FORMS.get(media.get("as"))
        if media.type == PROTOBUF and asked not in (None, Form.TABLE) and _version_is_known(media):
            yield weight, asked


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
