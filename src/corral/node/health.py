"""Whether a part of the node is well, for ``corral status`` and the log."""

from collections.abc import Callable

import structlog

log = structlog.get_logger()


class Health:
    """What is wrong with a part: ``problem``, empty while it is well.

    A problem is logged when it begins and when it is over, and ``changed`` is called then.
    """

    def __init__(self, part: str, changed: Callable[[], None]) -> None:
        self.problem = ""
        self._part = part
        self._changed = changed

    def say(self, problem: str) -> None:
        """Tell how it is; what was told before is not told again."""
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            log.warning("not well", part=self._part, problem=problem)
        else:
            log.info("well again", part=self._part)
        self._changed()
