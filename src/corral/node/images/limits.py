"""How much of a machine one image may take: all that comes from a registry is hostile."""

from dataclasses import dataclass

GiB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a pull or an import; what exceeds one is refused with the bound's value.

    download_bytes: all layers of one image, as the registry sends them.
    unpacked_bytes: what any one layer, or an imported file, may expand to.
    ratio: how many times its packed size a stream may expand, once it is past ``ratio_from_bytes``.
    files: how many files one layer may have.
    disk_bytes: what one disk may occupy in the store, holes not counted.
    virtual_bytes: the size of a disk as its guest sees it.
    pull_seconds, convert_seconds: deadlines of a whole pull and of one conversion.
    stall_seconds: how long a registry may be silent.
    attempts, retry_seconds: how often a request that got nothing is sent again, and the first
    pause between two, which doubles.
    """

    download_bytes: int = 64 * GiB
    unpacked_bytes: int = 256 * GiB
    ratio: int = 1000
    ratio_from_bytes: int = 1 * GiB
    files: int = 200_000
    disk_bytes: int = 64 * GiB
    virtual_bytes: int = 8192 * GiB
    pull_seconds: float = 3600
    convert_seconds: float = 900
    stall_seconds: float = 30
    attempts: int = 3
    retry_seconds: float = 0.5
