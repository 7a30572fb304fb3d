"""All documents of an installation, in the order in which they are applied."""

from collections.abc import Iterator
from typing import Final

from corral.api.kinds.storage.common import WAITING_CLASS
from corral.api.kinds.storage.storageclass import STORAGE_CLASS
from corral.api.object import Document
from corral.cluster.persistent_volumes import default_storage_class
from corral.daemon.install import admission, definitions, flow_control, rbac, workloads
from corral.daemon.install.options import Options, document, labeled

_PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}


def documents(options: Options) -> Iterator[Document]:
    """Yield every document.

    Webhooks are last: from then on an object is refused while no controllers run.
    """
    namespace = document("v1", "Namespace", options.namespace)
    namespace["metadata"]["labels"] |= _PRIVILEGED
    yield labeled(namespace)
    yield from definitions.documents()
    yield from rbac.documents(options)
    yield from flow_control.documents(options)
    yield _storage_class()
    yield from admission.policies(options)
    yield from workloads.documents(options)
    yield from workloads.api_services(options)
    yield from admission.documents(options)


def _storage_class() -> Document:
    """Return the class of claims on the nodes' own disks; it is no default."""
    made = default_storage_class.storage_class(WAITING_CLASS)
    del made["metadata"]["annotations"]
    return labeled({"apiVersion": STORAGE_CLASS.api_version, "kind": STORAGE_CLASS.name, **made})
