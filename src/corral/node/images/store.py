"""Keeps disks by their content and finds them by image name.

    disks/sha256-HEX.qcow2 (or .raw)   read-only, shared by all machines, named after their content
    references/HEX.json                one record an image name: which disk it means
    blobs/                             layers on their way in; interrupted pulls go on from them
    work/                              disks on their way in

Records and disks are written aside and renamed, the disk first, so a kill at any moment leaves a
store that is whole.  Several processes may use one store: the manager and ``corral image``.

Directories that somebody takes away are made anew when they are next needed.  Where ``references``
was one of them, disks are not deleted any more: nobody knows which of them were wanted.
"""

import asyncio
import fcntl
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog

from corral import files
from corral.node.host.destinations import FOR_TENANTS, Destinations
from corral.node.host.inotify import IN_MOVE_SELF, IN_MOVED_TO, OVERFLOW, Inotify
from corral.node.images import blob, convert, qcow
from corral.node.images.access import Access
from corral.node.images.credentials import Credential, matching
from corral.node.images.error import (
    ERR_IMAGE_NEVER_PULL,
    NO_SUCH_IMAGE,
    ImageError,
    invalid_disk,
    of_storage,
    pull_failed,
)
from corral.node.images.examples import advice, importing, located
from corral.node.images.image import Image, may_share
from corral.node.images.image_record import Record
from corral.node.images.limits import Limits
from corral.node.images.progress import Meter, Report, in_thread, silent
from corral.node.images.pull import Pull
from corral.node.images.reference import Reference, parse
from corral.node.images.single_flight import Flights
from corral.node.images.streams import Stream, pieces_of, write_sparse
from corral.node.images.work_directory import workplace

log = structlog.get_logger()


class ImageStore:
    """The images of this machine, in a directory of their own.

    ``destinations``: where registries may be; by themselves tenants name none on this host.
    ``option``: what commands that are told take to find it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limits: Limits | None = None,
        destinations: Destinations = FOR_TENANTS,
        option: Sequence[str] = (),
    ) -> None:
        self._destinations, self._option = destinations, option
        self._disks = directory / "disks"
        self._references = directory / "references"
        self._blobs = directory / "blobs"
        self._work = directory / "work"
        self.limits = limits or Limits()
        self._flights: Flights[Image] = Flights()
        self._handlers: list[Callable[[Image], None]] = []
        self._lock = self._references / ".lock"
        self._incomplete = self._references / ".incomplete"
        self._make()

    # ------------------------------------------------------------------ asking

    def find(self, reference: str, *, file: str = "") -> Image | None:
        """The local image of that name; raises ImageError ``InvalidImageName``.

        ``file`` is a containerDisk's ``path``; an imported disk is found whatever it says, as it
        stands for the whole container image.
        """
        name = str(parse(reference))
        for wanted in dict.fromkeys(("", file)):
            image = self._read(self._record_path(name, wanted))
            if image and (image.source == "import" or wanted == file):
                return image
        return None

    def images(self) -> list[Image]:
        """All images, by name."""
        found = (self._read(path) for path in self._references.glob("*.json"))
        return sorted((each for each in found if each), key=lambda each: each.reference)

    def nameless(self) -> str:
        """That disks have lost their names, and what to do about it; empty where none has."""
        if not self._incomplete.exists():
            return ""
        named = {image.path for image in self.images()}
        if not (lost := [disk for disk in self._disks.iterdir() if disk not in named]):
            return ""
        return (
            f"{len(lost)} of the disks in {self._disks} have no name any more: copy what was in "
            f"{self._references} back, or import them anew; rm {self._incomplete} gives them up"
        )

    def _read(self, path: Path) -> Image | None:
        if (record := files.read_json(path, Record)) is None:
            return None
        disk = self._disks / record.disk
        try:
            size = disk.stat().st_blocks * 512
        except FileNotFoundError:
            return None  # removed meanwhile, or by other hands: as good as absent
        return Image.of(record, disk, size)

    # ----------------------------------------------------------------- telling

    def handle(self, imported: Callable[[Image], None]) -> None:
        """Call this with each image that is imported, by any process, while this is watched.

        A pull is told to whoever asked for it; who tries again when it is done would pull for ever.
        """
        self._handlers.append(imported)

    async def watch(self) -> None:
        """Tell of images that are imported, until cancelled."""
        watches: list[int] = []

        def begin() -> None:
            self._make()
            for gone in watches:
                inotify.remove(gone)
            root = inotify.add(self._references.parent, IN_MOVE_SELF)
            watches[:] = root, inotify.add(self._references, IN_MOVED_TO | IN_MOVE_SELF)
            if lost := self.nameless():
                log.error("images have lost their names", told=lost)

        def changed(watch: int, name: str) -> None:
            if name:
                self._tell(self._read(self._references / name))
                return
            if watch != OVERFLOW and watch not in watches:
                return  # the end of one that is watched no more
            begin()  # the directory is gone, and others may have made it anew
            for image in self.images():
                self._tell(image)

        inotify = Inotify(changed)
        await inotify.run(
            begin, otherwise="images that are imported are noticed by the next attempt only"
        )

    def _tell(self, image: Image | None) -> None:
        if image is not None and image.source == "import":
            for imported in self._handlers:
                imported(image)

    # ----------------------------------------------------------------- getting

    async def ensure(
        self,
        reference: str,
        *,
        policy: str,
        path: str = "",
        credentials: Sequence[Credential] = (),
        progress: Report = silent,
    ) -> Image:
        """The image, pulled if the policy and its absence ask for it; raises ImageError.

        ``policy`` is a container's imagePullPolicy (Always, IfNotPresent or Never), and ``path`` a
        containerDisk's.  What was imported is served under every policy without asking a registry;
        what came with somebody's secret, to whoever has that, else the registry is asked again.
        ``progress`` hears of a pull, and of nothing when none is needed.  Callers that want the
        same at the same time share one pull, which ends when the last of them is cancelled.
        """
        local, name = self.find(reference, file=path), parse(reference)
        fitting = matching(credentials, name)
        if local and local.access.allows(fitting) and local.is_fixed(policy):
            return local
        if policy == "Never":
            raise never_pulled(reference, name, self._option)

        async def work(report: Report) -> Image:
            return await self._pull(reference, path, credentials, report)

        # Whoever has other credentials may see another answer.
        return await self._flights.join((reference, path, tuple(credentials)), work, progress)

    async def _pull(
        self, reference: str, path: str, credentials: Sequence[Credential], report: Report
    ) -> Image:
        name = parse(reference)
        fitting = matching(credentials, name)
        known = {
            each.manifest: each
            for each in self.images()
            if each.manifest and each.file == path and may_share(each, name, fitting)
        }
        try:
            self._make()
            with workplace(self._work, self._blobs) as work:
                pull = Pull(
                    reference=name,
                    path=path,
                    credentials=credentials,
                    blobs=self._blobs,
                    target=work / "pulled",
                    known=known.keys(),
                    limits=self.limits,
                    destinations=self._destinations,
                )
                manifest, access = await pull.run(report)
                if same := known.get(manifest):
                    return await asyncio.to_thread(self._alias, same, str(name), access)
                record = Record(
                    reference=str(name), file=path, source="pull", manifest=manifest, access=access
                )
                return await self._keep(pull.target, f"the disk of {name}", record, [], report)
        except ImageError as error:
            raise as_pull(name, error, self._option) from error
        except OSError as error:
            raise of_storage(f"failed to pull image {str(name)!r}", error, pull_failed) from error

    async def import_disk(
        self, source: Path, references: Sequence[str], *, progress: Report = silent
    ) -> Image:
        """Take a raw or qcow2 file in, gzip, xz, zstd or bzip2 compressed or not, under some names.

        Answers the image of the first name.  Raises ImageError ``InvalidDisk`` or
        ``InvalidImageName``.  A name that meant something else means this disk from now on.
        """
        names = [str(parse(each)) for each in references]
        if not names:
            raise ValueError("an imported disk needs a name")
        try:
            self._make()
            with workplace(self._work, self._blobs) as work:
                target = work / "imported"
                packed = await asyncio.to_thread(source.stat)
                meter = Meter(progress, "unpack", packed.st_size)
                await in_thread(_copy, meter, source, target, self.limits)
                record = Record(reference=names[0], source="import")
                return await self._keep(target, str(source), record, names[1:], progress)
        except OSError as error:
            raise of_storage(f"cannot import {source}", error, invalid_disk) from error

    async def tag(self, reference: str, references: Sequence[str]) -> Image:
        """Let further names mean the disk of an image, as if it had been imported under them.

        Answers the image of the first.  Raises ImageError ``ImageNotFound`` or
        ``InvalidImageName``.
        """
        found, (name, *aliases) = self.find(reference), [str(parse(each)) for each in references]
        if found is None:
            raise ImageError(NO_SUCH_IMAGE, f"no image {parse(reference)}", "see: corral image ls")
        record = Record(
            reference=name,
            disk=found.path.name,
            format=found.format,
            virtual_size=found.virtual_size,
            source="import",
        )
        await asyncio.to_thread(self._commit, found.path, record, aliases)
        return self._kept(name, "")

    async def _keep(
        self, disk: Path, shown: str, record: Record, aliases: Sequence[str], report: Report
    ) -> Image:
        """Check a foreign disk, make it plain, and record it under its names."""
        kind = await asyncio.to_thread(qcow.inspect, disk, shown, self.limits)
        if kind.format == "qcow2":
            meter = Meter(report, "convert")
            plain = disk.with_name("plain")
            await convert.to_plain_qcow2(disk, plain, shown, self.limits)
            meter.advance(plain.stat().st_size)
            disk = plain
        digest = await asyncio.to_thread(blob.seal, disk)
        record = msgspec.structs.replace(
            record,
            disk=f"sha256-{digest}.{kind.format}",
            format=kind.format,
            virtual_size=kind.virtual_size,
        )
        await asyncio.to_thread(self._commit, disk, record, aliases)
        return self._kept(record.reference, record.file)

    # ---------------------------------------------------------------- changing

    def _commit(self, disk: Path, record: Record, aliases: Sequence[str]) -> None:
        """The disk first, then the names: a record never means a disk that is not there."""
        with self._locked():
            if not (kept := self._disks / record.disk).exists():
                disk.rename(kept)
            files.sync_directory(self._disks)
            for name in (record.reference, *aliases):
                named = msgspec.structs.replace(record, reference=name)
                self._write(named)
            self._collect()

    def _alias(self, image: Image, name: str, access: Access) -> Image:
        """Let a name mean a disk that is here already, for those to whom the registry gives it.

        The other name may have come to mean a disk that is not theirs since they began.
        """
        with self._locked():
            record = files.read_json(self._record_path(image.reference, image.file), Record)
            if record is None or record.manifest != image.manifest:
                raise pull_failed(
                    f"{image.reference} was removed or replaced as {name} was pulled", "try again"
                )
            self._write(msgspec.structs.replace(record, reference=name, access=access))
            self._collect()
        return self._kept(name, image.file)

    def _kept(self, name: str, file: str) -> Image:
        """What a name means that was written a moment ago; raises ImageError."""
        image = self._read(self._record_path(name, file))
        if image is None:
            raise invalid_disk(f"{name} was removed as it came in", "try again")
        return image

    def _write(self, record: Record) -> None:
        """Who had the same image under that name keeps it; the lock is held.

        So does what was imported under it while it was pulled: that stands for the image.
        """
        path = self._record_path(record.reference, record.file)
        old = files.read_json(path, Record)
        is_imported = old is not None and old.source == "import" and self._read(path) is not None
        if is_imported and record.source != "import":
            return
        if old is not None and old.manifest and old.manifest == record.manifest:
            record = msgspec.structs.replace(record, access=old.access.joined(record.access))
        files.replace(path, msgspec.json.encode(record), mode=0o600, durable=True)

    async def remove(self, reference: str) -> None:
        """Forget a name, and the disk when it was its last; raises ImageError ``ImageNotFound``.

        Machines that run from the disk are not touched: each holds a link of its own to it, so
        the space is free when the last of them has gone.
        """
        await asyncio.to_thread(self._remove, str(parse(reference)))

    def _remove(self, name: str) -> None:
        with self._locked():
            mine = [each for each in self.images() if each.reference == name]
            if not mine:
                raise ImageError(NO_SUCH_IMAGE, f"no image {name}", "see: corral image ls")
            for image in mine:
                self._record_path(name, image.file).unlink(missing_ok=True)
            files.sync_directory(self._references)
            self._collect()

    def _collect(self) -> None:
        """Delete disks that no name means; the lock is held."""
        if self.nameless():
            return
        self._incomplete.unlink(missing_ok=True)
        records = [files.read_json(path, Record) for path in self._references.glob("*.json")]
        if None in records:
            return  # a record that cannot be read may mean any of them
        meant = {record.disk for record in records if record is not None}
        for disk in self._disks.iterdir():
            if disk.name not in meant:
                disk.unlink()

    # ------------------------------------------------------------------- parts

    def _record_path(self, name: str, file: str) -> Path:
        """Names have slashes and any length, so a record's file is called by their hash."""
        key = hashlib.sha256(f"{name}\n{file}".encode()).hexdigest()
        return self._references / f"{key[:32]}.json"

    def _make(self) -> None:
        """Make the directories that are missing."""
        for each in (self._disks, self._references, self._blobs, self._work):
            each.mkdir(parents=True, exist_ok=True)
        # Who brings a disk locks the names first: these have never known the disks that are there.
        if not self._lock.exists() and any(self._disks.iterdir()):
            self._incomplete.touch()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among the processes that use this store; held for moments only."""
        self._make()
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _copy(meter: Meter, source: Path, target: Path, limits: Limits) -> None:
    with source.open("rb") as file:
        stream = Stream(file, name=str(source), limits=limits, meter=meter)
        write_sparse(target, pieces_of(stream), limits, str(source))


def never_pulled(reference: str, name: Reference, option: Sequence[str]) -> ImageError:
    """An image that may not be pulled is not there, or not for whoever asks.

    A kubelet says the same of both: that it is there is nobody's business.
    """
    message = f"Container image {reference!r} is not present with pull policy of Never"
    return ImageError(
        ERR_IMAGE_NEVER_PULL, message, located(advice(name) or importing(reference), option)
    )


def as_pull(name: Reference, error: ImageError, option: Sequence[str]) -> ImageError:
    """Whatever is wrong with what came from a registry, a kubelet calls it one thing."""
    prefix = f"failed to pull image {str(name)!r}: "
    message = error.message if error.message.startswith(prefix) else prefix + error.message
    hint = "; ".join(filter(None, (error.hint, advice(name))))
    return pull_failed(message, located(hint, option))
