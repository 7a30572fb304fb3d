"""Priorities of pods from their PriorityClass (Kubernetes' admission plugin Priority)."""

from functools import partial

from corral.api.kinds.core.pod import POD
from corral.api.kinds.priority_class import PREEMPT, PRIORITY_CLASS
from corral.api.object import Document, Key
from corral.server.request.call import forbidden, storage
from corral.store import Store


class Priorities:
    """The admission plugin of pods and PriorityClasses, by the PriorityClasses of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit_pod(self, pod: Document, old: Document | None) -> None:
        """Set a new pod's priority from its class, or the default class.  Raises Forbidden."""
        if old is not None:
            return
        spec, refused = pod["spec"], partial(forbidden, POD, pod["metadata"]["name"])
        name = spec.get("priorityClassName", "")
        priority_class = self._of_name(name) if name else self._default()
        if name and priority_class is None:
            raise refused(f"no PriorityClass with name {name} was found")
        value = priority_class["value"] if priority_class is not None else 0
        policy = priority_class["preemptionPolicy"] if priority_class is not None else PREEMPT
        if spec.get("priority", value) != value:
            raise refused(
                f"the integer value of priority ({spec['priority']}) must not be provided in pod "
                f"spec; priority admission controller computed {value} from the given "
                "PriorityClass name",
            )
        if spec.get("preemptionPolicy", policy) != policy:
            raise refused(
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be "
                f"provided in pod spec; priority admission controller computed {policy} from the "
                "given PriorityClass name",
            )
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
        spec["priority"], spec["preemptionPolicy"] = value, policy

    def check_class(self, document: Document, _old: Document | None) -> None:
        """Check that only one class is the global default.  Raises Forbidden."""
        default = self._default() if document.get("globalDefault") else None
        name = document["metadata"]["name"]
        if default is not None and default["metadata"]["name"] != name:
            message = f"PriorityClass {default['metadata']['name']} is already marked as default."
            raise forbidden(PRIORITY_CLASS, name, f"{message} Only one default can exist")

    def _of_name(self, name: str) -> Document | None:
        record = self._store.latest(storage(PRIORITY_CLASS), Key("", name))
        return None if record is None else record.document()

    def _default(self) -> Document | None:
        """Return the default class, or None; of several, the one of least priority."""
        classes = self._store.latest_all(storage(PRIORITY_CLASS)).values()
        marked = (one.document() for one in classes if b'"globalDefault":true' in one.rest)
        defaults = [each for each in marked if each.get("globalDefault")]
        return min(defaults, key=lambda each: each["value"], default=None)
