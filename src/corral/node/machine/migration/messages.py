"""The messages between the agents of a migration's two sides, on different hosts.  JSON.

The source sends commands.  The target sends a report at first and whenever it changes, and closes
the channel after its last one.
"""

import msgspec

from corral.api.errors import LONGEST_MESSAGE, shortened
from corral.node.machine.migration.handover import TargetState
from corral.node.machine.migration.targets import LocalTarget


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """A target, as it reports itself.

    state: UNKNOWN if it was stopped after the request to run the guest.
    disks: volumes whose disks the source copies.
    reported: whether the API shows the guest there.
    failure: the reason why it has ended, without having run the guest.
    """

    state: TargetState
    disks: tuple[str, ...] = ()
    reported: bool = False
    failure: str = ""

    @property
    def is_last(self) -> bool:
        return self.reported or bool(self.failure) or self.state is TargetState.UNKNOWN


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source's command.

    expect: to have the addresses lead there, as the guest stands still; run: to run the guest,
    ``paused`` if its user has paused it; cancel: to end, and why.
    """

    expect: bool = False
    run: bool = False
    paused: bool = False
    cancel: str = ""


def report_of(target: LocalTarget) -> Report:
    """Return the present report of a target."""
    return Report(target.observed, tuple(target.disks), target.is_reported, target.failure)


async def obey(target: LocalTarget, command: Command) -> None:
    """Pass a command on to a target, which ignores one that is too late."""
    if command.expect:
        await target.expect_guest()
    elif command.run and not target.failure:
        target.request_run(paused=command.paused)
    elif command.cancel:
        await target.cancel(shortened(command.cancel, LONGEST_MESSAGE))
