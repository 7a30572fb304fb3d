"""``--systemd``: a systemd unit that starts the manager, or a node alone, now and at every boot.

Root gets a system unit, other users a user unit (systemd.service(5)).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.cli import hints, self_command
from corral.cli.errors import Problem
from corral.config import Layout, default_directory
from corral.daemon import lock

RUNNING: Final = Path("/run/systemd/system")
"""Exists if systemd is the running init system (sd_booted(3))."""
_LINGERING: Final = Path("/var/lib/systemd/linger")
"""Directory with a file for each user with lingering, whose units run without a login."""

_COMMON: Final = """\
Type=notify
ExecStart={start}
# Where the host itself goes down, guests are shut down before.
ExecStopPost=/bin/sh -c '[ "$$(systemctl{user} is-system-running)" != stopping ] || exec "$$@"' \\
    sh {down}
Restart=on-failure
RestartSec=2
TimeoutStartSec=15min
TimeoutStopSec=90
UMask=0077
LimitNOFILE=1048576
TasksMax=infinity
# Machines outlive the manager, and one of them that is out of memory ends alone.
KillMode=process
OOMPolicy=continue
Delegate=yes
{subgroup}
"""
_SUBGROUP: Final = "DelegateSubgroup=corral-manager"
_MIN_SUBGROUP_VERSION: Final = 254
_WITHOUT_SUBGROUP: Final = """\
# systemd before 254 starts the next manager in the unit's own cgroup, which must have no processes
# while machines have limits below it: until that manager has started they run without limits.
ExecStopPost=-/bin/sh -c 'read -r line </proc/self/cgroup; group=$${line#0::}; \\
    echo "-cpu -memory" >"/sys/fs/cgroup$${group%%/.control}/cgroup.subtree_control"'\
"""
_SYSTEM: Final = """\
# Not restricted is what machines need: namespaces, their network, users of their own, /dev/kvm and
# memory that is written and executed (TCG).
CapabilityBoundingSet=~CAP_SYS_MODULE CAP_SYS_BOOT CAP_SYS_TIME CAP_SYSLOG CAP_LINUX_IMMUTABLE
CapabilityBoundingSet=~CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_AUDIT_CONTROL CAP_AUDIT_READ
CapabilityBoundingSet=~CAP_WAKE_ALARM CAP_BLOCK_SUSPEND
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET
LockPersonality=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectSystem=full
ReadWritePaths={data}
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a data directory: its file, and whether it is a user unit."""

    path: Path
    of_user: bool

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def control(self) -> list[str]:
        """The systemctl command of the unit's systemd."""
        return ["systemctl", "--user"] if self.of_user else ["systemctl"]

    @property
    def log(self) -> str:
        """The command that shows the manager's log."""
        return f"journalctl {'--user ' if self.of_user else ''}-u {self.name}"


def unit_of(layout: Layout) -> Unit:
    """Return the unit of a data directory, whether it is installed or not."""
    of_user = os.geteuid() != 0
    return Unit(_directory(of_user=of_user) / f"corral{_suffix(layout)}.service", of_user)


def _directory(*, of_user: bool) -> Path:
    if not of_user:
        return Path("/etc/systemd/system")
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "systemd" / "user"


def _suffix(layout: Layout) -> str:
    """Return the unit's suffix: the path of its data directory, escaped as systemd-escape(1)."""
    if layout.root == default_directory().absolute():
        return ""
    escaped = (_escape(byte) for byte in os.fsencode(str(layout.root).strip("/")))
    return "-" + "".join(escaped)


def _escape(byte: int) -> str:
    letter = chr(byte)
    if letter == "/":
        return "-"
    plain = letter.isascii() and (letter.isalnum() or letter in ":_.")
    return letter if plain else f"\\x{byte:02x}"


def text(
    layout: Layout, given: Sequence[str], *, of_user: bool, version: int, command: str = "up"
) -> str:
    """Return the text of a unit: a command with these options, for a version of systemd."""
    data_option = ("--data-dir", str(layout.root))
    service = _COMMON.format(
        start=_command_line([*self_command.COMMAND, command, *data_option, *given]),
        down=_command_line([*self_command.COMMAND, "down", *data_option]),
        user=" --user" if of_user else "",
        subgroup=_SUBGROUP if version >= _MIN_SUBGROUP_VERSION else _WITHOUT_SUBGROUP,
    )
    return "\n".join(
        [
            f"# Written by corral {command} --systemd; corral stop --systemd removes it.",
            "[Unit]",
            f"Description=corral, machines of {_literal(str(layout.root))}",
            *_dependencies(layout, of_user=of_user),
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            service + ("" if of_user else _SYSTEM.format(data=_quote(str(layout.root)))),
            "[Install]",
            f"WantedBy={'default' if of_user else 'multi-user'}.target",
            "",
        ]
    )


def _dependencies(layout: Layout, *, of_user: bool) -> Iterator[str]:
    """Yield the unit's dependencies; a user unit cannot depend on system units."""
    yield f"RequiresMountsFor={_quote(str(layout.root))}"
    if not of_user:
        yield "Wants=network-online.target"
        yield "After=network-online.target"


def _command_line(words: Sequence[str]) -> str:
    """Return a command line for systemd, with all special characters quoted."""
    return " ".join(_quote(word).replace("$", "$$") for word in words)


def _quote(word: str) -> str:
    plain = _literal(word)
    if plain and not set(plain) & set(" \t\"'\\;"):
        return plain
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literal(text: str) -> str:
    """Escape specifiers (systemd.unit(5))."""
    return text.replace("%", "%%")


def install(layout: Layout, given: list[str], command: str = "up") -> Iterator[str]:
    """Write and enable the unit, start it if systemd runs, and yield messages.  Raises Problem."""
    unit = unit_of(layout)
    _require(unit, layout)
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    version = _version(_query(unit, "--version"))
    unit.path.write_text(
        text(layout, given, of_user=unit.of_user, version=version, command=command)
    )
    _control(unit, "enable", "--quiet", unit.name)
    yield f"{unit.path} is written, and enabled: corral starts at boot."
    yield from _lingering_hint(unit)
    if _is_running(unit):
        _control(unit, "daemon-reload")
        _start(unit)
        yield f"corral runs.  Its log: {unit.log}"
    yield f"{hints.command_line('stop', layout)} --systemd removes the unit."


def remove(layout: Layout) -> bool:
    """Disable and remove the unit, which ends its manager; False if there is none."""
    unit = unit_of(layout)
    if not unit.path.exists():
        return False
    _control(unit, "disable", "--quiet", *(["--now"] if _is_running(unit) else []), unit.name)
    unit.path.unlink(missing_ok=True)
    if _is_running(unit):
        _control(unit, "daemon-reload")
    return True


def log_of(layout: Layout) -> str:
    """Return the command or the path by which to read the manager's log."""
    unit = unit_of(layout)
    return unit.log if unit.path.exists() else str(layout.log)


def _require(unit: Unit, layout: Layout) -> None:
    """Raises Problem if systemd is not installed, or a manager runs outside the unit."""
    if shutil.which("systemctl") is None:
        raise Problem(
            "systemd is not installed here, so it cannot start corral",
            f"{hints.up(layout)} runs it in the background.",
        )
    running = lock.find(layout.lock)
    if running is not None and _query(unit, "show", "-P", "MainPID", unit.name) != str(running.pid):
        raise Problem(
            f"corral runs already on {layout.root} (process {running.pid}, {running.url})",
            f"End it first: {hints.command_line('stop', layout)}. Its machines run on.",
        )


def _version(output: str) -> int:
    """Return the version in the output of ``systemctl --version``; 0 if there is none."""
    found = re.match(r"systemd (\d+)", output)
    return int(found[1]) if found else 0


def _lingering_hint(unit: Unit) -> Iterator[str]:
    if unit.of_user and not (_LINGERING / _user()).exists():
        yield "As it is, that is when you log in, and machines end when you log out:"
        yield "  loginctl enable-linger"


def _user() -> str:
    import pwd  # noqa: PLC0415  only for units of users

    return pwd.getpwuid(os.getuid()).pw_name


def _start(unit: Unit) -> None:
    try:
        _control(unit, "restart", unit.name)
    except Problem as problem:
        raise Problem(f"{unit.name} does not start", f"{unit.log} -n 20 shows why.") from problem


def _is_running(unit: Unit) -> bool:
    """Report whether the unit's systemd runs now, rather than only after the next boot."""
    if not unit.of_user:
        return RUNNING.exists()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return bool(runtime) and (Path(runtime) / "systemd" / "private").exists()


def _control(unit: Unit, *words: str) -> None:
    """Run systemctl.  Raises Problem with its stderr."""
    done = subprocess.run(
        [*unit.control, *words], capture_output=True, text=True, check=False,
        env=os.environ | ({} if _is_running(unit) else {"SYSTEMD_OFFLINE": "1"}),
    )  # fmt: skip
    if done.returncode:
        raise Problem(
            f"{' '.join([*unit.control, *words])}: {done.stderr.strip() or done.returncode}"
        )


def _query(unit: Unit, *words: str) -> str:
    """Return the output of systemctl; empty if it fails."""
    done = subprocess.run([*unit.control, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()
