"""Health of a part of the node, for ``corral status`` and the log."""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """A condition of a Node: whether it is True, why, and in words what corral does or lacks."""

    active: bool
    reason: str
    message: str


class Health:
    """The health of one part: ``problem``, which is empty while it is well.

    The begin and the end of a problem are logged, and ``changed`` is called.
    """

    def __init__(self, part: str, changed: Callable[[], None]) -> None:
        self.problem = ""
        self._part = part
        self._changed = changed

    def report(self, problem: str) -> None:
        """Set the problem, or (empty) none; the same one is not logged again."""
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            log.warning("unhealthy", part=self._part, problem=problem)
        else:
            log.info("healthy again", part=self._part)
        self._changed()
