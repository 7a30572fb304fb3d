"""References of VirtualMachines that name a volume: what its labels say takes their place.

A volume's claim, what fills it, and the golden image that it is made of may say by labels which
instance type and preference suit them (KubeVirt's pkg/instancetype/infer, whose words these are).
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
from corral.store import Store

WEBHOOK: Final = "virtualmachines-mutator.kubevirt.io"
_NO_SOURCE: Final = (
    "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported"
)
_NO_MEANING: Final = (
    "unable to infer defaults from DataSource that doesn't provide DataVolumeSourcePVC or "
    "DataVolumeSourceSnapshot"
)


class _Missing(Exception):
    """An object, or a volume, that is named is not there."""


class _Silent(Exception):
    """What is there says nothing of what suits it: whoever wants may let that pass."""


class Inference:
    """Asks volumes what suits them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle(self, document: Document) -> None:
        """Let references that name a volume name what suits it.  Raises BadRequest."""
        for matcher in MATCHERS:
            said = document["spec"].get(matcher.field)
            if said is not None and said.get("inferFromVolume"):
                self._settle(document, matcher, said)

    def _settle(self, document: Document, matcher: Matcher, said: Document) -> None:
        spec = document["spec"]
        guess = said.get("inferFromVolumeFailurePolicy") == "Ignore"
        try:
            labels = self._labels(document, matcher, said["inferFromVolume"])
        except (_Missing, _Silent) as error:
            if not (guess and isinstance(error, _Silent)):
                message = f'admission webhook "{WEBHOOK}" denied the request: {error}'
                raise BadRequest(message) from error
            del spec[matcher.field]
            return
        if guess and matcher is INSTANCETYPE:  # memory was for the case that it fails
            spec["template"]["spec"]["domain"].pop("memory", None)
        spec[matcher.field] = matcher.inferred(labels)

    def _labels(self, document: Document, matcher: Matcher, volume: str) -> Document:
        """The labels that say it.  Raises _Missing and _Silent."""
        silent: Exception = _Silent(
            f"unable to find required {matcher.name_label} label on the volume"
        )
        namespace = document["metadata"].get("namespace", "")
        try:
            for labels in self._told(document["spec"], namespace, volume):
                if matcher.inferred(labels) is not None:
                    return labels
        except _Silent as error:
            silent = error
        raise silent

    def _told(self, spec: Document, namespace: str, volume: str) -> Iterator[Document]:
        """The labels of all that tells of a volume, the nearest first.

        Raises _Missing and _Silent where the way ends.
        """
        volumes = at(spec, "template", "spec", "volumes") or ()
        named = next((each for each in volumes if each["name"] == volume), None)
        if named is None:
            raise _Missing(f"unable to find volume {volume} to infer defaults")
        if claim := at(named, "persistentVolumeClaim", "claimName"):
            yield self._found(_CLAIM, namespace, claim)
        elif name := at(named, "dataVolume", "name"):
            yield from self._of_data_volume(spec, namespace, name)
        else:
            raise _Silent(f"unable to infer defaults from volume {volume} as type is not supported")

    def _of_data_volume(self, spec: Document, namespace: str, name: str) -> Iterator[Document]:
        templates = spec.get("dataVolumeTemplates") or ()
        known = next((one for one in templates if at(one, "metadata", "name") == name), None)
        if known is None:
            known = self._document(_DATA_VOLUME, namespace, name)
        if known is None:  # its claim may outlive it
            yield self._found(_CLAIM, namespace, name)
            return
        yield _labels_of(known)
        if claim := at(known, "spec", "source", "pvc"):
            yield self._copied(claim, namespace)
        elif reference := at(known, "spec", "sourceRef"):
            yield from self._of_reference(reference, namespace)
        else:
            raise _Silent(_NO_SOURCE)

    def _of_reference(self, reference: Document, namespace: str) -> Iterator[Document]:
        if reference.get("kind") != DataSource.kind:
            raise _Silent(
                "unable to infer defaults from DataVolumeSourceRef as Kind "
                f"{reference.get('kind')} is not supported"
            )
        namespace = reference.get("namespace") or namespace
        source = self._document(_DATA_SOURCE, namespace, reference["name"])
        if source is None:
            raise _Missing(_not_found(_DATA_SOURCE, reference["name"]))
        yield _labels_of(source)
        if other := at(source, "spec", "source", "dataSource", "name"):
            source = self._document(_DATA_SOURCE, namespace, other)
            if source is None:
                raise _Missing(_not_found(_DATA_SOURCE, other))
            yield _labels_of(source)
        claim = at(source, "spec", "source", "pvc")
        if claim is None:
            raise _Silent(_NO_MEANING)
        yield self._copied(claim, namespace)

    def _copied(self, claim: Document, namespace: str) -> Document:
        return self._found(_CLAIM, claim.get("namespace") or namespace, claim["name"])

    def _found(self, kind: Kind, namespace: str, name: str) -> Document:
        document = self._document(kind, namespace, name)
        if document is None:
            raise _Missing(_not_found(kind, name))
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
