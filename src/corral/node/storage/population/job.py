"""One claim to populate, and the patches that report its status.  No I/O."""

from dataclasses import dataclass

from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.datavolume import Source
from corral.api.object import Document, Key
from corral.node.images.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A bound claim whose content is missing.

    key, uid: the claim; handle, capacity: its volume, and its size in bytes.
    source: where the content comes from.
    restarts: number of failed attempts.
    """

    key: Key
    uid: str
    handle: str
    capacity: int
    source: Source
    restarts: int = 0


def annotate(job: Job, **annotations: str | None) -> Document:
    """Return a patch of the claim's annotations.  Its uid makes it fail on a claim created anew."""
    return {"metadata": {"uid": job.uid, "annotations": annotations}}


def pending(job: Job, reason: str, message: str) -> Document:
    """Return the patch of a claim whose population cannot begin yet."""
    return annotate(
        job,
        **{
            population.PHASE: population.PENDING,
            population.RUNNING_CONDITION: "false",
            population.READY: None,
            population.REASON: reason,
            population.MESSAGE: message,
        },
    )


def running(job: Job, *, ready: bool = False) -> Document:
    """Return the patch of a claim that is being populated; ready: it accepts an upload."""
    return annotate(
        job,
        **{
            population.PHASE: population.RUNNING,
            population.RUNNING_CONDITION: "true",
            population.READY: "true" if ready else None,
            population.REASON: "Pod is running",
            population.MESSAGE: "",
        },
    )


def failed(job: Job, restarts: int, reason: str, message: str) -> Document:
    """Return the patch of a claim whose population failed and will be retried."""
    return annotate(
        job,
        **{
            population.PHASE: population.RUNNING,
            population.RUNNING_CONDITION: "false",
            population.READY: None,
            population.RESTARTS: str(restarts),
            population.REASON: reason,
            population.MESSAGE: message,
        },
    )


def succeeded(job: Job) -> Document:
    """Return the patch of a populated claim."""
    return annotate(
        job,
        **{
            population.PHASE: population.SUCCEEDED,
            population.RUNNING_CONDITION: "false",
            population.READY: None,
            population.PROGRESS: "100.0%",
            population.REASON: "Completed",
            population.MESSAGE: f"{_operation(job.source)} Complete",
        },
    )


def _operation(source: Source) -> str:
    if source.upload is not None:
        return "Upload"
    return "Clone" if source.pvc is not None else "Import"


def percent(progress: Progress) -> str | None:
    """Return the progress in CDI's notation, as ``12.34%``; None if the total is unknown."""
    if not progress.total_bytes:
        return None
    return f"{100 * progress.done_bytes / progress.total_bytes:.2f}%"
