"""``corral backup`` and ``corral restore``."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from corral.cli import hints
from corral.cli.errors import Problem
from corral.cli.options import data_directory
from corral.cli.output import field, size
from corral.config import Layout
from corral.daemon import lock

if TYPE_CHECKING:
    from corral.daemon import backup as backups


@click.command(epilog="\b\nExample:\n  corral backup lab-monday.backup")
@data_directory
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def backup(layout: Layout, file: Path) -> None:
    """Write all objects, certificates and keys to FILE, also while corral runs.

    Disks are not in it: those of claims lie in DIR/storage, and machines begin with their images
    again. The file holds secrets; it is readable by you alone.
    """
    from corral.daemon import backup as backups  # noqa: PLC0415  others need no store

    _require_directory(file)
    exists = file.exists()
    try:
        head = backups.make(layout, file.absolute(), partial(click.echo, err=True))
    except backups.BackupError as error:
        raise Problem(str(error)) from error
    total = size(sum(part.bytes for part in head.parts))
    replaced = ", in the place of an older backup" if exists else ""
    click.echo(f"{file} holds the objects up to revision {head.revision}, {total}{replaced}.")


@click.command(
    epilog="\b\nExample:\n  corral restore --check lab-monday.backup\n"
    "  corral down && corral restore lab-monday.backup && corral up --detach"
)
@data_directory
@click.option("--check", is_flag=True, help="Only read and describe the backup.")
@click.option("--damaged", is_flag=True, help="Only bring back objects that the disk has damaged.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
def restore(layout: Layout, file: Path, *, check: bool, damaged: bool) -> None:
    """Put the objects of a backup in the place of those in the data directory.

    No manager may run there. The previous store is kept beside, until the next restore.
    Certificates and keys are restored only if missing, so that present users keep their access.
    With --damaged all objects stay but those that cannot be read.
    """
    from corral.daemon import backup as backups  # noqa: PLC0415

    try:
        if check:
            _print(backups.check(file))
            return
        with _locked(layout):
            if damaged:
                _print_repaired(backups.restore_damaged(layout, file.absolute()), layout)
                return
            restored = backups.restore(layout, file.absolute())
    except backups.BackupError as error:
        raise Problem(str(error), "Nothing was changed.") from error
    except lock.AlreadyRunning as other:
        raise Problem(
            f"a manager runs on {layout.root}",
            f"End it first: {hints.command_line('down', layout)} ends the machines, too; "
            f"{hints.command_line('stop', layout)} lets them run on.",
        ) from other
    _print(restored.head)
    click.echo(field("objects", f"{restored.objects}, in {layout.root}"))
    if restored.before is not None:
        click.echo(field("before", f"the store that was there is {restored.before}"))
    if restored.kept:
        click.echo(field("kept", f"{', '.join(restored.kept)} of the data directory"))
    if restored.revoked:
        users = ", ".join(restored.revoked)
        click.echo(field("revoked", f"certificates of {users}, as in the store that was there"))
    click.echo(f"{'next':<12}{hints.up(layout)}")  # in one line, to be copied


def _print_repaired(repaired: "backups.RestoreResult", layout: Layout) -> None:
    for each in repaired.restored:
        click.echo(field("restored", str(each)))
    for each in repaired.missing:
        click.echo(field("missing", f"{each} is not in the backup, and stays damaged"))
    if not repaired.restored and not repaired.missing:
        click.echo("No object is damaged: nothing was changed.")
    click.echo(f"{'next':<12}{hints.up(layout)}")


@contextmanager
def _locked(layout: Layout) -> Iterator[None]:
    """Lock a data directory; create it if missing, and remove it again if the block fails.

    The lock file is removed only with its directory, since another process may have it open.
    Raises AlreadyRunning.
    """
    missing = [path for path in (layout.root, *layout.root.parents) if not path.exists()]
    try:
        layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock.acquire(layout.lock, url=""):
            try:
                yield
            except BaseException:
                if missing and [*layout.root.iterdir()] == [layout.lock]:
                    layout.lock.unlink()
                raise
    except BaseException:
        with suppress(OSError):  # not empty: another process has written there
            for path in missing:
                path.rmdir()
        raise


def require_complete_restore(layout: Layout) -> None:
    """Undo an interrupted restore in a data directory that this process has locked.

    Raises Problem if there was no store before: the manager would start without any objects.
    """
    from corral.daemon import backup as backups  # noqa: PLC0415

    if not backups.sweep(layout):
        raise Problem(
            f"a restore to {layout.root} was cut, and its objects are not there",
            "Run corral restore again. To begin without objects, remove first "
            f"{layout.root}/.restore-*.",
        )


def require_store(layout: Layout) -> None:
    """Raises Problem if the store is missing or empty, but other data refers to its objects."""
    from corral.daemon import data_files  # noqa: PLC0415

    if found := data_files.unknown(layout):
        raise Problem(
            f"there are no objects in {layout.store}, but beside it: {found}",
            f"{hints.command_line('restore', layout)} FILE brings the objects of a backup back. To "
            "begin without any, add --new-store: machines that run are ended and their disks are "
            "lost; volumes of claims stay as files.",
        )


def _require_directory(file: Path) -> None:
    if str(file) == "-":
        raise Problem("a backup is a file, not a stream", "Name it; ./- is one of that name.")
    if not file.absolute().parent.is_dir():
        raise Problem(
            f"{file} cannot be written: there is no directory {file.absolute().parent}",
            "Make it first, or name another file.",
        )


def _print(head: "backups.Head") -> None:
    click.echo(field("backup", f"made {head.made} by corral {head.corral}"))
    click.echo(field("revision", str(head.revision)))
    names = dict.fromkeys(part.name.partition("/")[0] for part in head.parts)
    total = size(sum(part.bytes for part in head.parts))
    click.echo(field("holds", f"{', '.join(names)}: {total}"))
