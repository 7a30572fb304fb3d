"""CronJob: names, columns, defaults and validation."""

import re
from collections.abc import Iterator

from lightkube.models.batch_v1 import CronJob

from corral.api.errors import Cause, limited, shortened
from corral.api.kind import Column, Verdict, at
from corral.api.kinds.causes import invalid, required, unsupported
from corral.api.kinds.columns import NONE, age, field, length, value
from corral.api.kinds.kubernetes_kind import kubernetes_kind
from corral.api.kinds.workloads.job import spec_causes
from corral.api.kinds.workloads.schedule import schedule_fault
from corral.api.kinds.workloads.template import (
    default_template,
    negative_causes,
    no_effect_warning,
    template_columns,
)
from corral.api.object import Document

POLICIES = ("Allow", "Forbid", "Replace")
LONGEST_NAME = 52
"""Names of its jobs are 11 characters longer, and are label values of pods."""

_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", re.ASCII)


def _default(document: Document) -> None:
    spec = document["spec"]
    spec.setdefault("concurrencyPolicy", POLICIES[0])
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    default_template(spec, "jobTemplate", "spec", "template")


def _validate(document: Document, old: Document | None, _user: str) -> Verdict:
    causes = list(_check_spec(document["spec"]))
    name = document["metadata"]["name"]
    if old is None and len(name) > LONGEST_NAME:
        why = f"must be no more than {LONGEST_NAME} characters"
        causes.append(invalid("metadata.name", name, why))
    return Verdict(limited(causes), [no_effect_warning("CronJob")])


def _check_spec(spec: Document) -> Iterator[Cause]:
    if not spec["schedule"]:
        yield required("spec.schedule")
    elif fault := schedule_fault(spec["schedule"]):
        yield invalid("spec.schedule", spec["schedule"], fault)
    zone = spec.get("timeZone")
    if zone == "":
        yield invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")
    elif zone == "Local" or (zone is not None and not _ZONE.fullmatch(zone)):
        yield invalid("spec.timeZone", zone, f"unknown time zone {shortened(zone)}")
    if spec["concurrencyPolicy"] not in POLICIES:
        yield unsupported("spec.concurrencyPolicy", spec["concurrencyPolicy"], POLICIES)
    yield from negative_causes(
        "spec",
        spec,
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    )
    yield from spec_causes("spec.jobTemplate.spec", at(spec, "jobTemplate", "spec") or {})


CRON_JOB = kubernetes_kind(
    group="batch",
    plural="cronjobs",
    short=("cj",),
    categories=("all",),
    view=CronJob,
    columns=(
        field("Schedule", "spec", "schedule", description="schedule of its jobs"),
        Column(
            name="Timezone",
            cell=lambda document: at(document, "spec", "timeZone") or NONE,
            description="time zone of the schedule",
        ),
        Column(
            name="Suspend",
            type="boolean",
            cell=lambda document: str(bool(at(document, "spec", "suspend"))),
            description="whether no jobs are created",
        ),
        length("Active", "status", "active", description="running jobs"),
        Column(
            name="Last Schedule",
            type="date",
            cell=value("status", "lastScheduleTime"),
            absent=NONE,
            description="when the last job was created",
        ),
        age(),
        *template_columns("spec", "jobTemplate", "spec", "template", selector=False),
        Column(
            name="Selector",
            cell=lambda _document: NONE,
            priority=1,
            description="always empty: its jobs have selectors",
        ),
    ),
    default=_default,
    validate=_validate,
)
