"""What the checkpoints of a node occupy: for its status, its metrics, and what it may promise."""

from typing import NamedTuple


class CheckpointUsage(NamedTuple):
    """The checkpoints of a node from which VMIs can start, and what all of them occupy."""

    number: int = 0
    disk_bytes: int = 0
    memory_bytes: int = 0
    """Memory that forks share, or are about to."""

    def __str__(self) -> str:
        disk, memory = (f"{each / (1 << 20):.0f} MiB" for each in self[1:])
        return f"{self.number}, {disk} on disk, {memory} of memory that forks share"
