"""Job: names, columns, defaults and validation."""

from collections.abc import Iterator

from lightkube.models.batch_v1 import Job

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid, required, unsupported
from corral.api.kinds.columns import age, condition_status
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.workloads.template import (
    default_template,
    negative_causes,
    no_effect_warning,
    template_causes,
    template_columns,
)
from corral.api.object import Document
from corral.api.time import human_duration, parse_rfc3339

INDEXED, NON_INDEXED = "Indexed", "NonIndexed"
RESTARTS = ("OnFailure", "Never")
_COUNTS = (
    *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"),
    *("ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"),
)
_UNBOUNDED = 2**31 - 1
_UID, _NAME = "controller-uid", "job-name"
_PREFIX = "batch.kubernetes.io/"


def default_spec(spec: Document) -> None:
    """Default the spec of a job."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else _UNBOUNDED)
    spec.setdefault("completionMode", NON_INDEXED)
    spec.setdefault("suspend", False)
    policy = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", policy)
    default_template(spec, "template")


def _default(document: Document) -> None:
    spec, metadata = document.setdefault("spec", {}), document["metadata"]
    default_spec(spec)
    if not metadata.get("labels") and (labels := at(spec, "template", "metadata", "labels")):
        metadata["labels"] = dict(labels)


def _default_create(document: Document) -> None:
    """Label the pods of a new job and set its selector, unless ``manualSelector`` is set."""
    spec, metadata = document.setdefault("spec", {}), document["metadata"]
    template = spec.get("template")
    if not isinstance(template, dict) or spec.get("manualSelector"):
        return
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    for name, value in ((_UID, metadata["uid"]), (_NAME, metadata["name"])):
        labels[_PREFIX + name] = labels[name] = value
    if spec.get("selector") is None:
        spec["selector"] = {"matchLabels": {_PREFIX + _UID: metadata["uid"]}}


def spec_causes(path: str, spec: Document) -> Iterator[Cause]:
    """Check the spec of a job or of a job template."""
    yield from negative_causes(path, spec, *_COUNTS)
    mode = spec.get("completionMode", NON_INDEXED)
    if mode not in (INDEXED, NON_INDEXED):
        yield unsupported(f"{path}.completionMode", mode, (INDEXED, NON_INDEXED))
    elif mode == INDEXED and spec.get("completions") is None:
        yield required(f"{path}.completions", f"when completion mode is {INDEXED}")
    template = spec.get("template") or {}
    if at(template, "spec", "restartPolicy") == "Always":
        valid = ", ".join(f'"{each}"' for each in RESTARTS)
        yield required(f"{path}.template.spec.restartPolicy", f"valid values: {valid}")
        yield from template_causes(f"{path}.template", template, restarts=("Always",))
    else:
        yield from template_causes(f"{path}.template", template, restarts=RESTARTS)


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    spec = document["spec"]
    causes = [*spec_causes("spec", spec), *_check_selector(spec, old), *_check_changes(spec, old)]
    return Verdict(limited(causes), [no_effect_warning("Job")])


def _check_selector(spec: Document, old: Document | None) -> Iterator[Cause]:
    """Check that a new job has a selector of its own only with ``manualSelector``."""
    selector = at(spec, "selector", "matchLabels") or {}
    if old is None and not spec.get("manualSelector") and _PREFIX + _UID not in selector:
        yield invalid("spec.selector", spec.get("selector"), "`selector` not auto-generated")


def _check_changes(spec: Document, old: Document | None) -> Iterator[Cause]:
    if old is None:
        return
    old_spec = at(old, "spec") or {}
    immutable = ["selector", "completionMode"]
    immutable += [] if old_spec.get("suspend") else ["template"]
    immutable += [] if old_spec.get("completionMode") == INDEXED else ["completions"]
    for name in immutable:
        if spec.get(name) != old_spec.get(name):
            yield invalid(f"spec.{name}", spec.get(name), "field is immutable")


def _status(document: Document) -> str:
    for condition, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition_status(document, condition) == "True":
            return word
    if at(document, "metadata", "deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition_status(document, condition) == "True":
            return condition
    return "Running"


def _completions(document: Document) -> str:
    done = at(document, "status", "succeeded") or 0
    completions = at(document, "spec", "completions")
    if completions is not None:
        return f"{done}/{completions}"
    parallel = at(document, "spec", "parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _duration(document: Document) -> str:
    """Return the duration of a job; blank while it is running."""
    times = (at(document, "status", name) for name in ("startTime", "completionTime"))
    try:
        started, ended = (parse_rfc3339(str(each)) for each in times)
    except ValueError:
        return ""
    return human_duration((ended - started).total_seconds())


JOB = kubernetes_kind(
    group="batch",
    plural="jobs",
    categories=("all",),
    view=Job,
    columns=(
        Column(name="Status", cell=_status, description="status in one word"),
        Column(name="Completions", cell=_completions, description="succeeded pods, of all"),
        Column(name="Duration", cell=_duration, description="its duration"),
        age(),
        *template_columns("spec", "template"),
    ),
    selectable={
        "status.successful": lambda document: str(at(document, "status", "succeeded") or 0)
    },
    default=_default,
    default_create=_default_create,
    validate=_validate,
)
