"""The devices of a machine: one module per family, each a pure function from domain to arguments.

To add one, write a module with such a function, and add it to ``DEVICES``, whose order is that of
the guest's devices.
"""

from collections.abc import Callable

from corral.node.qemu.devices.agent import agent
from corral.node.qemu.devices.balloon import balloon
from corral.node.qemu.devices.disks import disks
from corral.node.qemu.devices.graphics import graphics
from corral.node.qemu.devices.inputs import inputs
from corral.node.qemu.devices.interfaces import interfaces
from corral.node.qemu.devices.memory import memory
from corral.node.qemu.devices.panic import panic
from corral.node.qemu.devices.ports import ports
from corral.node.qemu.devices.rng import rng
from corral.node.qemu.devices.serial import serial
from corral.node.qemu.devices.watchdog import watchdog
from corral.node.qemu.domain import Domain

DEVICES: tuple[Callable[[Domain], list[str]], ...] = (
    serial,
    agent,
    rng,
    ports,
    disks,
    interfaces,
    graphics,
    inputs,
    watchdog,
    panic,
    balloon,
    memory,
)
