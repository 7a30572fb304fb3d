"""Inference of instance types and preferences from labels of volumes (inferFromVolume).

The labels may be those of a volume's PVC, of its DataVolume, or of the DataSource and PVC that this
clones.  As KubeVirt's pkg/instancetype/infer, with its messages.
"""

from collections.abc import Iterator
from typing import Final

from lightkube.models.core_v1 import PersistentVolumeClaim

from corral.api.errors import BadRequest
from corral.api.instancetypes.matchers import INSTANCETYPE, MATCHERS, Matcher
from corral.api.kind import Kind, at
from corral.api.kinds import kind_of
from corral.api.kinds.cdi.datasource import DataSource
from corral.api.kinds.cdi.datavolume import DataVolume
from corral.api.object import Document, Key
from corral.server.request.call import storage
from corral.store import Objects

WEBHOOK: Final = "virtualmachines-mutator.kubevirt.io"
_NO_SOURCE: Final = (
    "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported"
)
_NO_TARGET: Final = (
    "unable to infer defaults from DataSource that doesn't provide DataVolumeSourcePVC or "
    "DataVolumeSourceSnapshot"
)


class _MissingError(Exception):
    """A referenced object or volume does not exist."""


class _NoLabelsError(Exception):
    """No labels to infer from; inferFromVolumeFailurePolicy ``Ignore`` allows that."""


class Inference:
    """Infers instance types and preferences from the volumes of a store."""

    def __init__(self, store: Objects) -> None:
        self._store = store

    def infer(self, document: Document) -> None:
        """Replace references with inferFromVolume by inferred ones.  Raises BadRequest."""
        for matcher in MATCHERS:
            reference = document["spec"].get(matcher.field)
            if reference is not None and reference.get("inferFromVolume"):
                self._infer(document, matcher, reference)

    def _infer(self, document: Document, matcher: Matcher, reference: Document) -> None:
        spec = document["spec"]
        ignores_failure = reference.get("inferFromVolumeFailurePolicy") == "Ignore"
        try:
            labels = self._labels(document, matcher, reference["inferFromVolume"])
        except (_MissingError, _NoLabelsError) as error:
            if not (ignores_failure and isinstance(error, _NoLabelsError)):
                message = f'admission webhook "{WEBHOOK}" denied the request: {error}'
                raise BadRequest(message) from error
            del spec[matcher.field]
            return
        if ignores_failure and matcher is INSTANCETYPE:  # memory is the fallback
            spec["template"]["spec"]["domain"].pop("memory", None)
        spec[matcher.field] = matcher.inferred(labels)

    def _labels(self, document: Document, matcher: Matcher, volume: str) -> Document:
        """Return the nearest labels to infer from.  Raises _MissingError and _NoLabelsError."""
        no_labels: Exception = _NoLabelsError(
            f"unable to find required {matcher.name_label} label on the volume"
        )
        namespace = document["metadata"].get("namespace", "")
        try:
            for labels in self._candidate_labels(document["spec"], namespace, volume):
                if matcher.inferred(labels) is not None:
                    return labels
        except _NoLabelsError as error:
            no_labels = error
        raise no_labels

    def _candidate_labels(self, spec: Document, namespace: str, volume: str) -> Iterator[Document]:
        """Yield the labels of a volume's PVC or DataVolume, and of what it clones, in this order.

        Raises _MissingError, and _NoLabelsError at a type that has no labels.
        """
        volumes = at(spec, "template", "spec", "volumes") or ()
        entry = next((each for each in volumes if each["name"] == volume), None)
        if entry is None:
            raise _MissingError(f"unable to find volume {volume} to infer defaults")
        if claim := at(entry, "persistentVolumeClaim", "claimName"):
            yield self._existing_labels(_CLAIM, namespace, claim)
        elif name := at(entry, "dataVolume", "name"):
            yield from self._of_data_volume(spec, namespace, name)
        else:
            raise _NoLabelsError(
                f"unable to infer defaults from volume {volume} as type is not supported"
            )

    def _of_data_volume(self, spec: Document, namespace: str, name: str) -> Iterator[Document]:
        templates = spec.get("dataVolumeTemplates") or ()
        data_volume = next((one for one in templates if at(one, "metadata", "name") == name), None)
        if data_volume is None:
            data_volume = self._document(_DATA_VOLUME, namespace, name)
        if data_volume is None:  # its PVC may outlive it
            yield self._existing_labels(_CLAIM, namespace, name)
            return
        yield _labels_of(data_volume)
        if claim := at(data_volume, "spec", "source", "pvc"):
            yield self._claim_labels(claim, namespace)
        elif reference := at(data_volume, "spec", "sourceRef"):
            yield from self._of_reference(reference, namespace)
        else:
            raise _NoLabelsError(_NO_SOURCE)

    def _of_reference(self, reference: Document, namespace: str) -> Iterator[Document]:
        if reference.get("kind") != DataSource.kind:
            raise _NoLabelsError(
                "unable to infer defaults from DataVolumeSourceRef as Kind "
                f"{reference.get('kind')} is not supported"
            )
        namespace = reference.get("namespace") or namespace
        source = self._document(_DATA_SOURCE, namespace, reference["name"])
        if source is None:
            raise _MissingError(_not_found(_DATA_SOURCE, reference["name"]))
        yield _labels_of(source)
        if other := at(source, "spec", "source", "dataSource", "name"):
            source = self._document(_DATA_SOURCE, namespace, other)
            if source is None:
                raise _MissingError(_not_found(_DATA_SOURCE, other))
            yield _labels_of(source)
        claim = at(source, "spec", "source", "pvc")
        if claim is None:
            raise _NoLabelsError(_NO_TARGET)
        yield self._claim_labels(claim, namespace)

    def _claim_labels(self, claim: Document, namespace: str) -> Document:
        return self._existing_labels(_CLAIM, claim.get("namespace") or namespace, claim["name"])

    def _existing_labels(self, kind: Kind, namespace: str, name: str) -> Document:
        document = self._document(kind, namespace, name)
        if document is None:
            raise _MissingError(_not_found(kind, name))
        return _labels_of(document)

    def _document(self, kind: Kind, namespace: str, name: str) -> Document | None:
        record = self._store.latest(storage(kind), Key(namespace, name))
        return None if record is None else record.document()


_CLAIM: Final = kind_of(PersistentVolumeClaim)
_DATA_VOLUME: Final = kind_of(DataVolume)
_DATA_SOURCE: Final = kind_of(DataSource)


def _labels_of(document: Document) -> Document:
    labels: Document = at(document, "metadata", "labels") or {}
    return labels


def _not_found(kind: Kind, name: str) -> str:
    return f'{kind.resource} "{name}" not found'
