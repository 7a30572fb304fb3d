"""Resource limits for untrusted images."""

from dataclasses import dataclass

GiB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a pull or an import; an error names the exceeded one.

    download_bytes: all layers of an image, as downloaded.
    unpacked_bytes: a layer or an imported file, decompressed.
    ratio: of decompression, for streams larger than ``ratio_from_bytes``.
    files: number of files in a layer.
    disk_bytes: allocated bytes of a disk in the store.
    virtual_bytes: the guest's view of a disk.
    pull_seconds, convert_seconds: deadlines of a whole pull and of one conversion.
    stall_seconds: maximum silence of a registry.
    attempts, retry_seconds: number of attempts without progress, and the first pause between two,
    which doubles.
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
