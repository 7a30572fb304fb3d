"""DataSource: a name under which golden images are found (CDI's cdi.kubevirt.io/v1beta1)."""

from typing import Any, ClassVar

import msgspec

from corral.api.kinds.cdi.datavolume import GROUP, ClaimCopy, DataVolumeCondition
from corral.api.object import AnyFields, Object, Struct


class SourceName(Struct, kw_only=True):
    """Names another DataSource, which must name what it means itself.

    namespace: where it is: beside the one that names it.
    name: its name.
    """

    name: str
    namespace: str = ""


class DataSourceSource(Struct, kw_only=True):
    """What the name means: one of them, or nothing yet.

    pvc: a claim.
    snapshot: a VolumeSnapshot.
    data_source: another DataSource.
    """

    pvc: ClaimCopy | None = None
    snapshot: AnyFields | None = None
    data_source: SourceName | None = None


class DataSourceSpec(Struct, kw_only=True):
    """What the DataSource shall be.

    source: what the name means: one of them, or nothing yet.
    """

    source: DataSourceSource


class DataSourceStatus(Struct, kw_only=True):
    """What is known of the DataSource.

    source: what the name means now, also where another DataSource tells it; only when it is ready.
    conditions: Ready.
    """

    source: DataSourceSource | None = None
    conditions: list[DataVolumeCondition] = []


class DataSource(Object, kw_only=True):
    """A name for a claim: DataVolumes whose sourceRef names it become copies of that claim.

    spec: what it shall be.
    status: what is known of it.
    """

    api_version: ClassVar[str] = f"{GROUP}/v1beta1"
    kind: ClassVar[str] = "DataSource"

    spec: DataSourceSpec
    status: DataSourceStatus = msgspec.field(default_factory=DataSourceStatus)


class KeptDataSource(DataSource, kw_only=True):
    """A DataSource as it may be kept: any status was taken before it had fields.

    status: as it is; ``known_status`` is what of it can be read.
    """

    status: Any = None

    @property
    def known_status(self) -> DataSourceStatus:
        """The status, empty where it is none that is known."""
        try:
            return msgspec.convert(self.status or {}, DataSourceStatus)
        except msgspec.ValidationError:
            return DataSourceStatus()
