"""Gives the guest of a fork an identity of its own, through its agent.

It has the memory of another machine, and with that its host name, machine-id, SSH host keys, clock
and random numbers.  Without an agent that may run programs it keeps them, which an event reports.
"""

import asyncio
import base64
import os
import time
from typing import Final

from corral.aio import wait_at_most
from corral.api.kinds.vmi.derived import host_name
from corral.api.kinds.vmi.fork_state import RENEWED, SHARED
from corral.api.kinds.vmi.vmi import VirtualMachineInstance
from corral.node.hypervisor import GuestError
from corral.node.machine.lifecycle import Machine
from corral.node.reseed_program import RESEED
from corral.node.state.events import MachineEvents
from corral.node.state.machine_state import IDENTITY_SECONDS

_SEED_BYTES: Final = 512
_RETRY_SECONDS: Final = 30.0

SCRIPT: Final = """
name=$1 id=$2 program_text=$3 now=$4 host_keys=
fail() { echo "$1" >&2; exit 1; }
reseed() {
    [ -x /usr/lib/demo/reseed ] && /usr/lib/demo/reseed > /dev/urandom && return
    for run in 'perl -e exit(!ioctl(STDOUT,0x5207,0))' \\
        'python3 -c __import__("fcntl").ioctl(1,0x5207)'; do
        command -v "${run%% *}" > /dev/null && $run > /dev/urandom 2> /dev/null && return
    done
    for place in /run /tmp /var/tmp; do
        program=$place/corral-reseed.$$
        printf "$program_text" > $program && chmod 700 $program && $program > /dev/urandom && done=1
        rm -f $program
        [ -z "$done" ] || return 0
    done 2> /dev/null
    return 1
}
read -r seed && echo "$seed" > /dev/urandom
reseed || fail "the kernel cannot be made to reseed its random numbers"
date -s "@$now" > /dev/null || fail "its clock cannot be set"
{ echo "$name" > /proc/sys/kernel/hostname; } 2> /dev/null || hostname "$name"
[ ! -e /etc/hostname ] || echo "$name" > /etc/hostname
if [ -r /usr/lib/demo/name ]; then . /usr/lib/demo/name; name_host "$name"; fi
[ ! -e /etc/machine-id ] || echo "$id" > /etc/machine-id
set -- /etc/ssh/ssh_host_*_key
if [ -e "$1" ]; then
    new=$(mktemp -d /etc/ssh/new.XXXXXX) && mkdir -p $new/etc/ssh &&
        ssh-keygen -A -f $new > /dev/null && ls $new/etc/ssh/ssh_host_*_key > /dev/null ||
        fail "ssh-keygen makes no new host keys"
    rm -f /etc/ssh/ssh_host_*
    mv $new/etc/ssh/* /etc/ssh/ || fail "the new host keys cannot be put into /etc/ssh"
    rm -rf $new
    for service in ssh sshd; do
        systemctl try-restart $service || rc-service $service restart
    done 2> /dev/null
fi
set -- /etc/dropbear/*_host_key
if [ -e "$1" ]; then
    rm -f "$@"
    if [ "$host_keys" != by_connection ]; then
        killall dropbear
        dropbear -R || fail "dropbear does not start again"
    fi
fi
exit 0
"""
"""Arguments: host name, machine-id, ``RESEED`` for printf, the time; input: a line of random text.

A guest that has just gone on runs code that QEMU has not translated yet: each program that is
started takes longer than all builtins of the shell together, hence no cat, ls and hostname.  The
agent's own command for the clock needs hwclock, which small guests lack.
"""


async def renew(machine: Machine, vmi: VirtualMachineInstance, recorder: MachineEvents) -> None:
    """Renew the identity of a fork's guest; retry until its agent has done it."""
    source, reported = machine.record.fork_of, ""
    await wait_at_most(machine.agent_up, IDENTITY_SECONDS)
    while why := await _failure(machine, vmi):
        if why != reported:
            message = f"The guest has the host name, keys and random numbers of {source}: {why}"
            machine.record_fork(SHARED, message, source=source)
            recorder.vmi_event("Warning", SHARED, message)
        reported = why
        await asyncio.sleep(_RETRY_SECONDS)
        await machine.agent_up.wait()
    machine.record_fork(RENEWED)
    message = f"The guest has an identity of its own, and is called {host_name(vmi)}."
    recorder.vmi_event("Normal", RENEWED, message)


async def _failure(machine: Machine, vmi: VirtualMachineInstance) -> str:
    """Renew the identity once; return why that has failed."""
    if not machine.agent_up.is_set():
        return "it has no guest agent"
    try:
        agent = machine.guest.agent
        machine_id = vmi.metadata.uid.replace("-", "")
        program = "".join(f"\\{byte:03o}" for byte in RESEED)
        arguments = (host_name(vmi), machine_id, program, str(round(time.time())))
        command = ("/bin/sh", "-c", SCRIPT, "sh", *arguments)
        done = await agent.run(command, base64.b64encode(os.urandom(_SEED_BYTES)) + b"\n")
    except GuestError as error:
        return str(error)
    if not done.exit_code:
        return ""
    errors = done.errors.decode(errors="replace")[:200]
    return errors or f"its program has ended with exit code {done.exit_code}"
