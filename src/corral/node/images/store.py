"""The image store: disks by digest, found by image name.

    disks/sha256-HEX.qcow2 (or .raw)   read-only disks, shared by all machines, named by digest
    references/HEX.json                a record for each image name: its disk
    blobs/                             partial layers, from which interrupted pulls resume
    work/                              work directories of pulls and imports

Records and disks are written to temporary names and renamed, the disk first, so that a kill at any
moment leaves a consistent store.  Several processes may use one store: the manager and
``corral image``.

Missing directories are created again on demand.  If ``references`` was missing, disks are no longer
deleted, since the names of those that are in use are lost.
"""

import asyncio
import fcntl
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral import files
from corral.api.errors import ApiError
from corral.node.host.destinations import FOR_TENANTS, Destinations
from corral.node.host.inotify import IN_DELETE, IN_MOVE_SELF, IN_MOVED_TO, OVERFLOW, Inotify
from corral.node.images import blob, convert, qcow
from corral.node.images.access import Access
from corral.node.images.asking import Offered, ask, report_failure
from corral.node.images.credentials import Credential, matching
from corral.node.images.error import (
    ERR_IMAGE_NEVER_PULL,
    NO_SUCH_IMAGE,
    ImageError,
    from_os_error,
    invalid_disk,
    pull_failed,
)
from corral.node.images.examples import build_hint, import_hint, with_option
from corral.node.images.image import Image, Record, may_share
from corral.node.images.limits import Limits
from corral.node.images.offer import RequestedImage
from corral.node.images.peer import Peer
from corral.node.images.progress import Meter, Report, in_thread, silent
from corral.node.images.reference import Reference, parse
from corral.node.images.single_flight import SingleFlight
from corral.node.images.streams import Stream, chunks_of, write_sparse
from corral.node.images.work_directory import work_directory

_CHANGES: Final = IN_MOVED_TO | IN_DELETE | IN_MOVE_SELF

log = structlog.get_logger()


class ImageStore:
    """The images of a data directory.

    destinations: allowed addresses of registries; tenants must not reach this host's by default.
    peers: returns the hosts that may have the image of a name, asked before any registry.
    option: the option that selects the data directory, for commands in hints.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limits: Limits | None = None,
        destinations: Destinations = FOR_TENANTS,
        option: Sequence[str] = (),
        peers: Callable[[str], Sequence[Peer]] = lambda _: (),
    ) -> None:
        self._destinations, self._option, self._peers = destinations, option, peers
        self._disks = directory / "disks"
        self._references = directory / "references"
        self._blobs = directory / "blobs"
        self._work = directory / "work"
        self.limits = limits or Limits()
        self._pulls: SingleFlight[Image] = SingleFlight()
        self._handlers: list[Callable[[Image], None]] = []
        self._change_handlers: list[Callable[[], None]] = []
        self._lock = self._references / ".lock"
        self._incomplete = self._references / ".incomplete"
        self._make_directories()

    # ----------------------------------------------------------------- reading

    def find(self, reference: str, *, file: str = "") -> Image | None:
        """Return the local image of a name, if any.  Raises ImageError ``InvalidImageName``.

        file: a containerDisk's ``path``; an imported disk matches any, since it replaces the whole
        container image.
        """
        name = str(parse(reference))
        for each in dict.fromkeys(("", file)):
            image = self._read(self._record_path(name, each))
            if image and (image.is_whole or each == file):
                return image
        return None

    def images(self) -> list[Image]:
        """Return all images, sorted by name."""
        found = (self._read(path) for path in self._references.glob("*.json"))
        return sorted((each for each in found if each), key=lambda each: each.reference)

    def lost_names(self) -> str:
        """Return a warning if the records of disks were lost; empty if not."""
        if not self._incomplete.exists():
            return ""
        named = {image.path for image in self.images()}
        if not (lost := [disk for disk in self._disks.iterdir() if disk not in named]):
            return ""
        return (
            f"{len(lost)} of the disks in {self._disks} have lost their names: copy what was in "
            f"{self._references} back, or import them anew; rm {self._incomplete} gives them up"
        )

    def _read(self, path: Path) -> Image | None:
        if (record := files.read_json(path, Record)) is None:
            return None
        disk = self._disks / record.disk
        try:
            size = disk.stat().st_blocks * 512
        except FileNotFoundError:
            return None  # removed meanwhile, or by a user
        return Image.of(record, disk, size)

    # --------------------------------------------------------------- notifying

    def handle(self, imported: Callable[[Image], None]) -> None:
        """Add a handler of imports, by any process, while ``watch`` runs.

        Pulls are not reported: a handler that retries a failed pull would pull for ever.
        """
        self._handlers.append(imported)

    def handle_changes(self, changed: Callable[[], None]) -> None:
        """Add a handler of images that come or go, by any process, while ``watch`` runs."""
        self._change_handlers.append(changed)

    async def watch(self) -> None:
        """Notify handlers until cancelled."""
        watches: list[int] = []

        def begin() -> None:
            self._make_directories()
            for old in watches:
                inotify.remove(old)
            root = inotify.add(self._references.parent, IN_MOVE_SELF)
            watches[:] = root, inotify.add(self._references, _CHANGES)
            if lost := self.lost_names():
                log.error("images have lost their names", details=lost)

        def changed(watch: int, name: str) -> None:
            for handler in self._change_handlers:
                handler()
            if name:
                self._notify(self._read(self._references / name))
                return
            if watch != OVERFLOW and watch not in watches:
                return  # IN_IGNORED of a removed watch
            begin()  # the directory was moved away; another process may have created it again
            for image in self.images():
                self._notify(image)

        inotify = Inotify(changed)
        await inotify.run(
            begin, failure_message="images that are imported are noticed by the next attempt only"
        )

    def _notify(self, image: Image | None) -> None:
        if image is not None and image.source == "import":
            for imported in self._handlers:
                imported(image)

    # ----------------------------------------------------------------- pulling

    async def ensure(
        self,
        reference: str,
        *,
        policy: str,
        path: str = "",
        credentials: Sequence[Credential] = (),
        progress: Report = silent,
    ) -> Image:
        """Return an image, pulled if the policy requires that.  Raises ImageError.

        policy: imagePullPolicy (Always, IfNotPresent or Never); path: a containerDisk's.
        progress: called with the progress of a pull.
        An imported image satisfies all policies without a registry.  An image that was pulled with
        a secret is returned to callers with that secret; for others the registry decides again.
        Concurrent callers of the same pull share it; it ends when the last of them is cancelled.
        """
        local, name = self.find(reference, file=path), parse(reference)
        matched = matching(credentials, name)
        if local and local.access.allows(matched) and local.satisfies(policy):
            return local
        requested = RequestedImage(reference, path, matched)

        async def work(report: Report) -> Image:
            return await self._obtain(requested, policy, credentials, report)

        # The key has the credentials, since the registry may respond differently to others.
        return await self._pulls.run((reference, path, tuple(credentials), policy), work, progress)

    async def _obtain(
        self, image: RequestedImage, policy: str, credentials: Sequence[Credential], report: Report
    ) -> Image:
        """Copy an image of another host, or pull it.

        A copy of an import stays in use while its origin is away.
        """
        name = parse(image.reference)
        offers = await ask(self._peers(str(name)), image, policy)
        local = self.find(image.reference, file=image.file)
        copy = local if local is not None and local.source == "copy" else None
        failed = offers.failed
        if offers.usable is not None:
            if copy is not None and copy.digest == offers.usable.offer.digest:
                return copy
            if copied := await self._copy(offers.usable, image, None, report):
                return copied
            failed = True
        if failed and copy is not None:
            return copy
        if policy == "Never":
            raise never_pull_error(image.reference, name, self._option)
        return await self._pull(image, credentials, offers.pulled, report)

    async def _copy(
        self, offered: Offered, image: RequestedImage, access: Access | None, report: Report
    ) -> Image | None:
        """Copy what a peer offers; None if it sends something else, or nothing.

        access: of the registry, if it was asked.  Raises ImageError for a full disk.
        """
        peer, offer = offered
        try:
            self._make_directories()
            with work_directory(self._work, self._blobs) as work:
                target = work / "copied"
                await peer.fetch(image, offer, target, Meter(report, "download", offer.size))
                kind = await asyncio.to_thread(qcow.inspect, target, image.reference, self.limits)
                digest = await asyncio.to_thread(blob.seal, target)
                is_pulled = offer.source == "pull"
                record = Record(
                    reference=str(parse(image.reference)),
                    file=image.file if is_pulled else "",
                    disk=f"sha256-{digest}.{kind.format}",
                    format=kind.format,
                    virtual_size=kind.virtual_size,
                    source="pull" if is_pulled else "copy",
                    manifest=offer.manifest,
                    access=access or Access.by_hash(offer.secret, image.credentials),
                )
                await asyncio.to_thread(self._commit, target, record, [])
            log.info("image copied", host=peer.name, image=record.reference, bytes=offer.size)
            return self._recorded(record.reference, record.file)
        except OSError as error:
            message = f"failed to copy image {image.reference!r}"
            raise from_os_error(message, error, pull_failed) from error
        except (ApiError, ImageError) as error:
            report_failure(peer, image, error)
            return None

    async def _pull(
        self,
        image: RequestedImage,
        credentials: Sequence[Credential],
        offered: Mapping[str, Offered],
        report: Report,
    ) -> Image:
        """Pull an image; copy its disk from a peer that offers the registry's manifest."""
        from corral.node.images.pull import Pull  # noqa: PLC0415 - most starts pull nothing

        name = parse(image.reference)
        cached = {
            each.manifest: each
            for each in self.images()
            if each.manifest
            and each.file == image.file
            and may_share(each, name, image.credentials)
        }
        try:
            self._make_directories()
            with work_directory(self._work, self._blobs) as work:
                pull = Pull(
                    reference=name,
                    path=image.file,
                    credentials=credentials,
                    blobs=self._blobs,
                    target=work / "pulled",
                    cached={*cached, *offered},
                    limits=self.limits,
                    destinations=self._destinations,
                )
                manifest, access = await pull.run(report)
                if same := cached.get(manifest):
                    return await asyncio.to_thread(self._alias, same, str(name), access)
                if (peer := offered.get(manifest)) is None:
                    record = Record(
                        reference=str(name),
                        file=image.file,
                        source="pull",
                        manifest=manifest,
                        access=access,
                    )
                    return await self._add(pull.target, f"the disk of {name}", record, [], report)
            if copied := await self._copy(peer, image, access, report):
                return copied
        except ImageError as error:
            raise as_pull_error(name, error, self._option) from error
        except OSError as error:
            raise from_os_error(
                f"failed to pull image {str(name)!r}", error, pull_failed
            ) from error
        return await self._pull(image, credentials, {}, report)

    async def import_disk(
        self, source: Path, references: Sequence[str], *, progress: Report = silent
    ) -> Image:
        """Import a raw or qcow2 file, optionally compressed, under one or more names.

        Compression is gzip, xz, zstd or bzip2.  Existing names are replaced.  Returns the image of
        the first name.  Raises ImageError ``InvalidDisk`` or ``InvalidImageName``.
        """
        names = [str(parse(each)) for each in references]
        if not names:
            raise ValueError("an imported disk needs a name")
        try:
            self._make_directories()
            with work_directory(self._work, self._blobs) as work:
                target = work / "imported"
                packed = await asyncio.to_thread(source.stat)
                meter = Meter(progress, "unpack", packed.st_size)
                await in_thread(_copy, meter, source, target, self.limits)
                record = Record(reference=names[0], source="import")
                return await self._add(target, str(source), record, names[1:], progress)
        except OSError as error:
            raise from_os_error(f"cannot import {source}", error, invalid_disk) from error

    async def tag(self, reference: str, references: Sequence[str]) -> Image:
        """Add names to the disk of an image, as if it had been imported under them.

        Returns the image of the first name.  Raises ImageError ``ImageNotFound`` or
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
        return self._recorded(name, "")

    async def _add(
        self, disk: Path, description: str, record: Record, aliases: Sequence[str], report: Report
    ) -> Image:
        """Check an untrusted disk, convert it to plain qcow2, and record it under its names."""
        kind = await asyncio.to_thread(qcow.inspect, disk, description, self.limits)
        if kind.format == "qcow2":
            meter = Meter(report, "convert")
            plain = disk.with_name("plain")
            await convert.to_plain_qcow2(disk, plain, description, self.limits)
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
        return self._recorded(record.reference, record.file)

    # ---------------------------------------------------------------- changing

    def _commit(self, disk: Path, record: Record, aliases: Sequence[str]) -> None:
        """Move a disk into the store, then write its records, so that a record has its disk."""
        with self._locked():
            if not (path := self._disks / record.disk).exists():
                disk.rename(path)
            files.sync_directory(self._disks)
            for name in (record.reference, *aliases):
                self._write(msgspec.structs.replace(record, reference=name))
            self._collect_garbage()

    def _alias(self, image: Image, name: str, access: Access) -> Image:
        """Record a name for a stored image of the same manifest, with the access of this pull.

        Raises ImageError if the stored image was replaced since the pull began.
        """
        with self._locked():
            record = files.read_json(self._record_path(image.reference, image.file), Record)
            if record is None or record.manifest != image.manifest:
                raise pull_failed(
                    f"{image.reference} was removed or replaced as {name} was pulled", "try again"
                )
            self._write(msgspec.structs.replace(record, reference=name, access=access))
            self._collect_garbage()
        return self._recorded(name, image.file)

    def _recorded(self, name: str, file: str) -> Image:
        """Return the image of a record just written.  Raises ImageError if it was removed."""
        image = self._read(self._record_path(name, file))
        if image is None:
            raise invalid_disk(f"{name} was removed while it was stored", "try again")
        return image

    def _write(self, record: Record) -> None:
        """Write a record.  Needs the lock.

        The access of a previous record of the same manifest is merged.  A pull does not replace an
        import that was made under its name meanwhile.
        """
        path = self._record_path(record.reference, record.file)
        old = files.read_json(path, Record)
        is_imported = old is not None and old.source == "import" and self._read(path) is not None
        if is_imported and record.source != "import":
            return
        if old is not None and old.manifest and old.manifest == record.manifest:
            record = msgspec.structs.replace(record, access=old.access.merge(record.access))
        files.replace(path, msgspec.json.encode(record), mode=0o600, durable=True)

    async def remove(self, reference: str) -> None:
        """Remove a name, and its disk with the last name.  Raises ImageError ``ImageNotFound``.

        Running machines have hard links of their own; the space is free when the last has ended.
        """
        await asyncio.to_thread(self._remove, str(parse(reference)))

    def _remove(self, name: str) -> None:
        with self._locked():
            images = [each for each in self.images() if each.reference == name]
            if not images:
                raise ImageError(NO_SUCH_IMAGE, f"no image {name}", "see: corral image ls")
            for image in images:
                self._record_path(name, image.file).unlink(missing_ok=True)
            files.sync_directory(self._references)
            self._collect_garbage()

    def _collect_garbage(self) -> None:
        """Delete disks without a name.  Needs the lock."""
        if self.lost_names():
            return
        self._incomplete.unlink(missing_ok=True)
        records = [files.read_json(path, Record) for path in self._references.glob("*.json")]
        if None in records:
            return  # an unreadable record may refer to any disk
        referenced = {record.disk for record in records if record is not None}
        for disk in self._disks.iterdir():
            if disk.name not in referenced:
                disk.unlink()

    # ------------------------------------------------------------------- parts

    def _record_path(self, name: str, file: str) -> Path:
        """Return the path of a record: a hash, since names have slashes and any length."""
        key = hashlib.sha256(f"{name}\n{file}".encode()).hexdigest()
        return self._references / f"{key[:32]}.json"

    def _make_directories(self) -> None:
        """Create missing directories, for their owner alone: images may have needed a Secret."""
        for each in (self._disks, self._references, self._blobs, self._work):
            each.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            each.mkdir(mode=0o700, exist_ok=True)
        # The lock file is created before the first disk: disks without it have lost their records.
        if not self._lock.exists() and any(self._disks.iterdir()):
            self._incomplete.touch()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the store, against other processes too; for short changes only."""
        self._make_directories()
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _copy(meter: Meter, source: Path, target: Path, limits: Limits) -> None:
    with source.open("rb") as file:
        stream = Stream(file, name=str(source), limits=limits, meter=meter)
        write_sparse(target, chunks_of(stream), limits, str(source))


def never_pull_error(reference: str, name: Reference, option: Sequence[str]) -> ImageError:
    """Return the error of policy Never for an image that is absent or not accessible.

    The message is the same for both, as a kubelet's: it must not reveal which images are present.
    """
    message = f"Container image {reference!r} is not present with pull policy of Never"
    return ImageError(
        ERR_IMAGE_NEVER_PULL,
        message,
        with_option(build_hint(name) or import_hint(reference), option),
    )


def as_pull_error(name: Reference, error: ImageError, option: Sequence[str]) -> ImageError:
    """Return any error of a pull as ``ErrImagePull``, as a kubelet does."""
    prefix = f"failed to pull image {str(name)!r}: "
    message = error.message if error.message.startswith(prefix) else prefix + error.message
    hint = "; ".join(filter(None, (error.hint, build_hint(name))))
    return pull_failed(message, with_option(hint, option))
