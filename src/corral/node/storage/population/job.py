"""One claim to fill, and what is told on it meanwhile.  Pure."""

from dataclasses import dataclass

from corral.api.kinds.cdi import population
from corral.api.kinds.cdi.population import Wish
from corral.api.object import Document, Key
from corral.node.images.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A claim that has its volume, and wants content.

    key, uid: the claim; handle, capacity: its volume, and its size in bytes.
    restarts: how often filling it has failed.
    """

    key: Key
    uid: str
    handle: str
    capacity: int
    wish: Wish
    restarts: int = 0


def told(job: Job, **values: str | None) -> Document:
    """The patch that tells something on a job's claim, if it is still that one."""
    return {"metadata": {"uid": job.uid, "annotations": values}}


def waiting(job: Job, reason: str, message: str) -> Document:
    """Filling cannot begin yet."""
    return told(
        job,
        **{
            population.PHASE: population.PENDING,
            population.GOES_ON: "false",
            population.READY: None,
            population.REASON: reason,
            population.MESSAGE: message,
        },
    )


def going(job: Job, *, ready: bool = False) -> Document:
    """It is being filled; ``ready``: it waits for what is uploaded."""
    return told(
        job,
        **{
            population.PHASE: population.RUNNING,
            population.GOES_ON: "true",
            population.READY: "true" if ready else None,
            population.REASON: "Pod is running",
            population.MESSAGE: "",
        },
    )


def failed(job: Job, restarts: int, reason: str, message: str) -> Document:
    """It went wrong, and will be tried again."""
    return told(
        job,
        **{
            population.PHASE: population.RUNNING,
            population.GOES_ON: "false",
            population.READY: None,
            population.RESTARTS: str(restarts),
            population.REASON: reason,
            population.MESSAGE: message,
        },
    )


def done(job: Job) -> Document:
    """The claim has its content."""
    return told(
        job,
        **{
            population.PHASE: population.SUCCEEDED,
            population.GOES_ON: "false",
            population.READY: None,
            population.PROGRESS: "100.0%",
            population.REASON: "Completed",
            population.MESSAGE: f"{_work(job.wish)} Complete",
        },
    )


def _work(wish: Wish) -> str:
    if wish.source.upload is not None:
        return "Upload"
    return "Clone" if wish.source.pvc is not None else "Import"


def percent(progress: Progress) -> str | None:
    """How far it is, as CDI writes it; None where that is not known."""
    if not progress.total_bytes:
        return None
    return f"{100 * progress.done_bytes / progress.total_bytes:.2f}%"
