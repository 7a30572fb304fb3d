"""``corral up`` until ``/readyz`` says ok: an empty store, and one of 10 000 objects.

Both with the bytecode that an installer or the first start leaves; and without any on disk, that of
Python's own library included, as where nothing was compiled and nothing may be written.
"""

import tempfile
from pathlib import Path

from bench.cluster import cluster
from bench.figure import Figure
from bench.load import create_config_maps


def measure() -> list[Figure]:
    empty = []
    for _ in range(5):
        with cluster("--machine", "hollow") as one:
            empty.append(one.ready_seconds)
    compiling = []
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as nothing:
        environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": nothing}
        for _ in range(5):
            with cluster("--machine", "hollow", environment=environment) as one:
                compiling.append(one.ready_seconds)
    full = []
    with tempfile.TemporaryDirectory(prefix="corral-bench.") as directory:
        with cluster("--machine", "hollow", directory=Path(directory)) as one:
            create_config_maps(one, 10_000)
        for _ in range(5):
            with cluster("--machine", "hollow", directory=Path(directory)) as one:
                full.append(one.ready_seconds)
    return [
        Figure("up until ready, first start (makes its keys)", empty, "s", "≤ 2 s"),
        Figure("up until ready, first start, without bytecode", compiling, "s"),
        Figure("up until ready, store of 10 000 objects", full, "s", "≤ 4 s"),
    ]
