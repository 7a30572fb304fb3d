"""Seeds of tests that choose faults and their moments at random."""

import os


def seeds(count: int) -> range:
    """Return the seeds to try: the first ``count``, the same for every change.

    CORRAL_SEEDS and CORRAL_FIRST_SEED in the environment choose others, as in CORRAL_SEEDS=1000.
    """
    first = int(os.environ.get("CORRAL_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("CORRAL_SEEDS", str(count))))
