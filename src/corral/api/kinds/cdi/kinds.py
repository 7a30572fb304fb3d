"""The kinds of CDI: names, versions, columns and validation."""

from corral.api.kind import Kind, Version, Webhook
from corral.api.kinds.cdi import datavolume_validation
from corral.api.kinds.cdi.cdiconfig import CDIConfig
from corral.api.kinds.cdi.datasource import DataSource
from corral.api.kinds.cdi.datavolume import GROUP, DataVolume
from corral.api.kinds.cdi.uploadtoken import UPLOAD_GROUP, UploadTokenRequest
from corral.api.kinds.columns import age, field, number

_VALIDATOR = "datavolume-validate.cdi.kubevirt.io"

DATA_VOLUME = Kind(
    group=GROUP,
    plural="datavolumes",
    short=("dv", "dvs"),
    categories=("all",),
    versions=(Version(name="v1beta1"),),
    view=DataVolume,
    columns=(
        field("Phase", "status", "phase", description="The phase the data volume is in"),
        field(
            "Progress",
            "status",
            "progress",
            description="Transfer progress in percentage if known, N/A otherwise",
        ),
        number(
            "Restarts",
            "status",
            "restartCount",
            description="The number of times the transfer has been restarted.",
        ),
        age(),
    ),
    validate=datavolume_validation.validate,
    webhook=Webhook(create=_VALIDATOR, update=_VALIDATOR),
)

DATA_SOURCE = Kind(
    group=GROUP,
    plural="datasources",
    short=("das",),
    categories=("all",),
    versions=(Version(name="v1beta1"),),
    view=DataSource,
    columns=(age(),),
    validate=datavolume_validation.validate_reference,
    webhook=Webhook(
        create="datasource-validate.cdi.kubevirt.io",
        update="datasource-validate.cdi.kubevirt.io",
    ),
)

CDI_CONFIG = Kind(
    group=GROUP,
    plural="cdiconfigs",
    namespaced=False,
    versions=(Version(name="v1beta1"),),
    view=CDIConfig,
    columns=(age(),),
)

UPLOAD_TOKEN_REQUEST = Kind(
    group=UPLOAD_GROUP,
    plural="uploadtokenrequests",
    short=("utr", "utrs"),
    versions=(Version(name="v1beta1"),),
    view=UploadTokenRequest,
    status=False,
    columns=(age(),),
    create_only=True,
)

KINDS = (DATA_VOLUME, DATA_SOURCE, CDI_CONFIG, UPLOAD_TOKEN_REQUEST)
