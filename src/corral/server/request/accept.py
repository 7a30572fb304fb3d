"""Content negotiation: the form of a response (plain, Table, metadata) and its encoding.

Encodings are JSON, in which objects are stored; YAML; and protobuf, for Kubernetes' own kinds, and
for metadata of all kinds.  Protobuf is used only for clients that prefer it to JSON or accept no
JSON: for those that accept both equally, as typed clients do, the stored JSON is cheaper.
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
    """The forms in which the same objects are served."""

    PLAIN = "plain"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


@dataclass(frozen=True, slots=True)
class Media:
    """One media range of an Accept header."""

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
MAX_HEADER_CHARACTERS = 1 << 10
"""Characters of a header that are parsed: browsers send 200, kubectl 250.  Headers are parsed
before authentication, and cached."""
MAX_RANGES = 32
_ACCEPTED = "only the following media types are accepted: "
_STREAM = ";stream=watch"


class _Choice(NamedTuple):
    """A form with its media type, version, and weight."""

    form: Form | None
    type: str
    version: str
    weight: float


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A parsed Accept header: its media ranges, and the chosen form and type.

    ``version`` is the form's, ``aggregated`` the range that requests aggregated discovery.
    ``protobuf`` is the form preferred in protobuf, if any; ``metadata``: metadata is preferred in
    protobuf, for kinds without protobuf.
    """

    medias: tuple[Media, ...]
    aggregated: Media | None
    form: Form | None
    type: str = ""
    version: str = "v1"
    protobuf: Form | None = None
    metadata: bool = False


def medias(header: str) -> tuple[Media, ...]:
    """Return the media ranges by weight (``q``), then in order; wildcards last of equal weight."""
    return _accepted(header).medias


def _accepted(header: str) -> _Accepted:
    """Parse a header; of a long one only the whole ranges within the limit."""
    if len(header) > MAX_HEADER_CHARACTERS:
        header = header[:MAX_HEADER_CHARACTERS].rpartition(",")[0]
    return _read(header)


@lru_cache(maxsize=64)
def _read(header: str) -> _Accepted:
    ranges = []
    for part in header.split(",", MAX_RANGES)[:MAX_RANGES]:
        kind, *parameters = (part_text.strip() for part_text in part.split(";"))
        pairs = tuple(
            (name.strip(), value.strip())
            for name, _, value in (part_text.partition("=") for part_text in parameters)
        )
        if kind and (weight := _weight(dict(pairs).get("q", ""))) > 0:
            ranges.append((-weight, *_wildcards(kind), Media(kind.lower(), pairs)))
    ranked = [(-each[0], each[3]) for each in sorted(ranges, key=itemgetter(0, 1, 2))]
    ordered = tuple(media for _, media in ranked)
    form, kind, version, weight = _choose(header, ranked)
    protobuf_medias = [
        requested_form for more, requested_form in _protobuf_forms(ranked) if more > weight
    ]
    return _Accepted(
        ordered,
        _aggregated(ordered),
        form,
        kind,
        version,
        protobuf=protobuf_medias[0] if protobuf_medias else None,
        metadata=Form.METADATA in protobuf_medias,
    )


def _wildcards(kind: str) -> tuple[bool, bool]:
    main, _, sub = kind.partition("/")
    return main == "*", sub == "*"


def _weight(text: str) -> float:
    """Parse a weight; an invalid one counts as 1."""
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0


def form(header: str, *, native: bool = False) -> Form:
    """Return the form of a response; ``native`` kinds have protobuf.  Raises NotAcceptable."""
    if prefers_protobuf(header, native=native):
        return _accepted(header).protobuf or Form.METADATA if native else Form.METADATA
    chosen = _accepted(header).form
    if chosen is None:
        raise NotAcceptable(f"{_ACCEPTED}application/json, {YAML}, {PROTOBUF}")
    return chosen


def prefers_protobuf(header: str, *, native: bool = True) -> bool:
    """Return whether the client prefers protobuf, if the object has that encoding."""
    if "protobuf" not in header.lower():
        return False
    accepted = _accepted(header)
    return accepted.protobuf is not None if native else accepted.metadata


def form_version(header: str) -> str:
    """Return the ``apiVersion`` of a form that is not plain."""
    return f"meta.k8s.io/{_accepted(header).version}"


def require_not_table_only(header: str) -> None:
    """Check that a client accepts another form than a Table.  Raises NotAcceptable."""
    accepted = _accepted(header)
    if accepted.form is Form.TABLE:
        others = [(1.0, media) for media in accepted.medias if media.get("as") != "Table"]
        if _choose(header, others).form is None and accepted.protobuf is None:
            raise NotAcceptable(f"{_ACCEPTED}application/json, {YAML}, {PROTOBUF}")


def prefers_yaml(header: str) -> bool:
    """Return whether the client prefers YAML."""
    return _accepted(header).type == YAML


def aggregated(header: str) -> Media | None:
    """Return the media range that requests aggregated discovery; None for the unaggregated one."""
    return _accepted(header).aggregated


def accepts_json(header: str) -> bool:
    """Return whether the client accepts JSON at all."""
    accepted = _accepted(header)
    return accepted.type in _JSON or any(media.type in _JSON for media in accepted.medias)


def require_stream_type(header: str, *, native: bool) -> None:
    """Check that a client accepts a stream type: JSON or protobuf.  Raises NotAcceptable."""
    if not accepts_json(header) and not prefers_protobuf(header, native=native):
        streams = f"application/json{_STREAM}, {PROTOBUF}{_STREAM}"
        raise NotAcceptable(f"{_ACCEPTED}application/json, {streams}")


def _choose(header: str, ranked: Sequence[tuple[float, Media]]) -> _Choice:
    """Choose the form of a response in JSON or YAML."""
    if not header:
        return _Choice(Form.PLAIN, _JSON[0], "v1", 1.0)
    protobuf_medias: dict[float, Media] = {}
    for weight, media in ranked:
        requested_form = _FORMS.get(media.get("as"))
        if requested_form is None or not _is_supported_version(media):
            continue
        if media.type == PROTOBUF and requested_form is not Form.TABLE:
            protobuf_medias.setdefault(weight, media)
        elif media.type in _TYPES:
            # If protobuf came first with equal weight, JSON has no larger form than that.
            first = protobuf_medias.get(weight, media)
            chosen_media = first if _FORMS[first.get("as")] is Form.METADATA else media
            return _Choice(
                _FORMS[chosen_media.get("as")], media.type, chosen_media.get("v") or "v1", weight
            )
    return _Choice(None, "", "v1", 0.0)


def _protobuf_forms(ranked: Sequence[tuple[float, Media]]) -> Iterator[tuple[float, Form]]:
    """Yield the forms accepted in protobuf with their weights; Tables have no protobuf."""
    for weight, media in ranked:
        requested_form = _FORMS.get(media.get("as"))
        if (
            media.type == PROTOBUF
            and requested_form not in (None, Form.TABLE)
            and _is_supported_version(media)
        ):
            yield weight, requested_form


def _aggregated(ordered: tuple[Media, ...]) -> Media | None:
    supported = (media for media in ordered if media.type in _TYPES)
    requested_form = (media for media in supported if not media.get("as") or _is_aggregated(media))
    first = next(requested_form, None)
    return first if first is not None and first.get("as") else None


def _is_aggregated(media: Media) -> bool:
    return (
        media.get("as") == "APIGroupDiscoveryList"
        and media.get("g") == "apidiscovery.k8s.io"
        and media.get("v") in AGGREGATED_VERSIONS
    )


def _is_supported_version(media: Media) -> bool:
    return not media.get("as") or (
        media.get("g") == "meta.k8s.io" and media.get("v") in ("v1", "v1beta1")
    )
