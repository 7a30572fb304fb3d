"""Pod templates and selectors of workloads: defaults, validation and columns."""

from collections.abc import Iterator

from corral.api.errors import UNCHECKED, BadRequest, Cause
from corral.api.kind import Column, at
from corral.api.kinds.causes import forbidden, invalid, required, unsupported
from corral.api.kinds.columns import NONE
from corral.api.kinds.core import pod
from corral.api.kinds.label_selectors import selector_causes
from corral.api.metadata import check_labels
from corral.api.object import Document
from corral.api.selectors import label_selector

_COUNTS = ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")


def no_effect_warning(kind: str) -> str:
    """Return the warning about a write of a workload, which is stored without effect."""
    return f"corral runs virtual machines, not containers: nothing acts on this {kind}"


def default_template(document: Document, *path: str) -> None:
    """Default the pod template at a path as a pod."""
    template = at(document, *path)
    if isinstance(template, dict):
        pod.default(template)


def negative_causes(path: str, document: Document, *names: str) -> Iterator[Cause]:
    """Check that counts and seconds are not negative."""
    for name in names or ("replicas", *_COUNTS):
        value = document.get(name)
        if value is not None and value < 0:
            yield invalid(f"{path}.{name}", value, "must be greater than or equal to 0")


def template_causes(path: str, template: Document, *, restarts: tuple[str, ...]) -> Iterator[Cause]:
    """Check a pod template; ``restarts`` are the permitted restart policies."""
    yield from check_labels(at(template, "metadata", "labels") or {}, f"{path}.metadata.labels")
    spec = template.get("spec") or {}
    yield from pod.spec_causes(f"{path}.spec", spec)
    policy = spec.get("restartPolicy", "")
    if policy in pod.RESTART_POLICIES and policy not in restarts:
        yield unsupported(f"{path}.spec.restartPolicy", policy, restarts)


def workload_causes(spec: Document, kind: str, maker: str) -> Iterator[Cause]:
    """Check selector and template of a workload whose pods run for ever.

    ``kind`` and ``maker`` are the names of the workload in Kubernetes' messages.
    """
    selector, template = spec.get("selector") or {}, spec.get("template")
    faults = list(selector_causes("spec.selector", selector))
    yield from faults
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {kind}")
        faults = [*faults, UNCHECKED]
    if template is None:
        yield required("spec.template")
        return
    if not faults:
        yield from _check_match(selector, template)
    yield from template_causes("spec.template", template, restarts=("Always",))
    if at(template, "spec", "activeDeadlineSeconds") is not None:
        where = "spec.template.spec.activeDeadlineSeconds"
        yield forbidden(where, f"activeDeadlineSeconds in {maker} is not Supported")


def _check_match(selector: Document, template: Document) -> Iterator[Cause]:
    labels = at(template, "metadata", "labels") or {}
    try:
        matches = label_selector(selector).matches(labels)
    except BadRequest:  # longer than selectors may be
        yield invalid("spec.selector", selector, "invalid label selector")
        return
    if not matches:
        why = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels, why)


def selector_change_causes(document: Document, old: Document | None) -> Iterator[Cause]:
    """Check that the selector of a workload is unchanged."""
    selector = at(document, "spec", "selector")
    if old is not None and selector != at(old, "spec", "selector"):
        yield invalid("spec.selector", selector, "field is immutable")


# -------------------------------------------------------------------- columns


def count(name: str, *path: str, description: str) -> Column:
    """Return a column of a count, 0 if it is absent."""

    def cell(document: Document) -> int:
        return int(at(document, *path) or 0)

    return Column(name=name, type="integer", cell=cell, description=description)


def template_columns(*path: str, selector: bool = True) -> tuple[Column, ...]:
    """Return the wide columns of a workload with a template at a path."""

    def list_column(field: str) -> Column:
        def cell(document: Document) -> str:
            containers = at(document, *path, "spec", "containers") or ()
            return ",".join(str(each.get(field, "")) for each in containers)

        name = "Containers" if field == "name" else "Images"
        return Column(name=name, cell=cell, priority=1, description=f"{name.lower()} of its pods")

    columns = list_column("name"), list_column("image")
    return (*columns, _selector_column()) if selector else columns


def _selector_column() -> Column:
    def cell(document: Document) -> str:
        return selector_text(at(document, "spec", "selector"))

    return Column(name="Selector", cell=cell, priority=1, description="selector of its pods")


def selector_text(selector: Document | None) -> str:
    """Return a selector as kubectl prints it; that of ReplicationControllers is plain labels."""
    if not selector:
        return NONE
    if not selector.keys() <= {"matchLabels", "matchExpressions"}:
        selector = {"matchLabels": selector}
    try:
        return str(label_selector(selector)) or NONE
    except BadRequest:
        return "<error>"
