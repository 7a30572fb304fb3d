"""Pods are as important as their class says (Kubernetes' admission plugin Priority)."""

from functools import partial

from corral.api.kinds.core.pod import POD
from corral.api.kinds.priority_class import PREEMPT, PRIORITY_CLASS
from corral.api.object import Document, Key
from corral.server.request.call import forbidden, storage
from corral.store import Store


class Priorities:
    """The priority classes of a store, as they bear upon pods and upon each other."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def settle_pod(self, pod: Document, old: Document | None) -> None:
        """Give a new pod the priority of its class, or of the default one.  Raises Forbidden."""
        if old is not None:
            return
        spec, refused = pod["spec"], partial(forbidden, POD, pod["metadata"]["name"])
        name = spec.get("priorityClassName", "")
        found = self._of_name(name) if name else self._default()
        if name and found is None:
            raise refused(f"no PriorityClass with name {name} was found")
        value = found["value"] if found is not None else 0
        policy = found["preemptionPolicy"] if found is not None else PREEMPT
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
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
        spec["priority"], spec["preemptionPolicy"] = value, policy

    def check_class(self, document: Document, _old: Document | None) -> None:
        """Only one class is the default.  Raises Forbidden."""
        default = self._default() if document.get("globalDefault") else None
        name = document["metadata"]["name"]
        if default is not None and default["metadata"]["name"] != name:
            told = f"PriorityClass {default['metadata']['name']} is already marked as default."
            raise forbidden(PRIORITY_CLASS, name, f"{told} Only one default can exist")

    def _of_name(self, name: str) -> Document | None:
        record = self._store.latest(storage(PRIORITY_CLASS), Key("", name))
        return None if record is None else record.document()

    def _default(self) -> Document | None:
        """The class of pods that name none: of several, the least important."""
        classes = self._store.latest_all(storage(PRIORITY_CLASS)).values()
        marked = (one.document() for one in classes if b'"globalDefault":true' in one.rest)
        found = [each for each in marked if each.get("globalDefault")]
        return min(found, key=lambda each: each["value"], default=None)
