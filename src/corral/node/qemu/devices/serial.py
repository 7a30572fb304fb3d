"""The serial console: a socket for one client at a time, and a log that needs no client.

QEMU appends to the log itself, so what a guest prints while the manager is away is kept.
"""

from corral.node.qemu.domain import Domain


def serial(domain: Domain) -> list[str]:
    devices = domain.vmi.spec.domain.devices
    if devices.autoattach_serial_console is False:
        return []
    chardev = f"socket,id=serial0,fd={domain.handles.serial},server=on,wait=off"
    if devices.log_serial_console is not False:
        chardev += f",logfile=/dev/fdset/{domain.handles.serial_log},logappend=on"
    return ["-chardev", chardev, "-serial", "chardev:serial0"]
