"""Job: pods that come to an end."""

from collections.abc import Iterator

from lightkube.models.batch_v1 import Job

from corral.api.errors import Cause, limited
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid, required, unsupported
from corral.api.kinds.columns import age, condition_status
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.workloads.template import (
    default_template,
    described,
    negative_causes,
    nothing_acts,
    template_causes,
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
    """What every job has, whether its maker said so or not."""
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
    """A new job marks its pods, unless its maker says how they are found."""
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
    """What is wrong with a job's spec, be it in a job or in the template of one."""
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
    causes = [*spec_causes("spec", spec), *_selector(spec, old), *_changes(spec, old)]
    return Verdict(limited(causes), [nothing_acts("Job")])


def _selector(spec: Document, old: Document | None) -> Iterator[Cause]:
    """Who does not say that the selector is theirs has none, on create."""
    selector = at(spec, "selector", "matchLabels") or {}
    if old is None and not spec.get("manualSelector") and _PREFIX + _UID not in selector:
        yield invalid("spec.selector", spec.get("selector"), "`selector` not auto-generated")


def _changes(spec: Document, old: Document | None) -> Iterator[Cause]:
    if old is None:
        return
    before = at(old, "spec") or {}
    fixed = ["selector", "completionMode"]
    fixed += [] if before.get("suspend") else ["template"]
    fixed += [] if before.get("completionMode") == INDEXED else ["completions"]
    for name in fixed:
        if spec.get(name) != before.get(name):
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
    wanted = at(document, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = at(document, "spec", "parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _duration(document: Document) -> str:
    """How long it took; blank while it has not ended."""
    ends = (at(document, "status", name) for name in ("startTime", "completionTime"))
    try:
        begun, ended = (parse_rfc3339(str(moment)) for moment in ends)
    except ValueError:
        return ""
    return human_duration((ended - begun).total_seconds())


JOB = kubernetes_kind(
    group="batch",
    plural="jobs",
    categories=("all",),
    view=Job,
    columns=(
        Column(name="Status", cell=_status, description="how it is, in one word"),
        Column(name="Completions", cell=_completions, description="pods that ended well, of all"),
        Column(name="Duration", cell=_duration, description="how long it took"),
        age(),
        *described("spec", "template"),
    ),
    selectable={
        "status.successful": lambda document: str(at(document, "status", "succeeded") or 0)
    },
    default=_default,
    default_create=_default_create,
    validate=_validate,
)
