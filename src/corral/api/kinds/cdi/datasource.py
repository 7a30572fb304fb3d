"""DataSource: a named reference to a golden image (CDI's cdi.kubevirt.io/v1beta1)."""

from typing import Any, ClassVar

import msgspec

from corral.api.kinds.cdi.datavolume import GROUP, ClaimCopy, DataVolumeCondition
from corral.api.object import AnyFields, Object, Struct


class SourceName(Struct, kw_only=True):
    """A reference to another DataSource, which must not be a reference itself.

    namespace: its namespace, which is that of the one that refers to it.
    name: its name.
    """

    name: str
    namespace: str = ""


class DataSourceSource(Struct, kw_only=True):
    """The object that the DataSource refers to: one of them, or none yet.

    pvc: a claim.
    snapshot: a VolumeSnapshot.
    data_source: another DataSource.
    """

    pvc: ClaimCopy | None = None
    snapshot: AnyFields | None = None
    data_source: SourceName | None = None


class DataSourceSpec(Struct, kw_only=True):
    """Desired state of the DataSource.

    source: what it refers to: one of them, or nothing yet.
    """

    source: DataSourceSource


class DataSourceStatus(Struct, kw_only=True):
    """Observed state of the DataSource.

    source: the resolved reference, also through another DataSource; only when it is ready.
    conditions: Ready.
    """

    source: DataSourceSource | None = None
    conditions: list[DataVolumeCondition] = []


class DataSource(Object, kw_only=True):
    """A named reference to a claim: DataVolumes whose sourceRef names it are copies of that claim.

    spec: desired state.
    status: observed state.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "DataSource"

    spec: DataSourceSpec
    status: DataSourceStatus = msgspec.field(default_factory=DataSourceStatus)


class StoredDataSource(DataSource, kw_only=True):
    """A stored DataSource; earlier versions accepted any status.

    status: the status as stored; see ``parsed_status``.
    """

    status: Any = None

    @property
    def parsed_status(self) -> DataSourceStatus:
        """The status; empty if it does not conform to the schema."""
        try:
            return msgspec.convert(self.status or {}, DataSourceStatus)
        except msgspec.ValidationError:
            return DataSourceStatus()
