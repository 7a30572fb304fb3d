"""The guest agent's channel: a virtio-serial port with the name that qemu-ga expects."""

from corral.node.qemu.domain import Domain, device

CHANNEL = "org.qemu.guest_agent.0"
CHARDEV = "agent0"


def agent(domain: Domain) -> list[str]:
    return [
        "-chardev",
        f"socket,id={CHARDEV},fd={domain.handles.agent},server=on,wait=off",
        *device("virtio-serial-pci", id="virtserial0"),
        *device("virtserialport", bus="virtserial0.0", chardev=CHARDEV, id=CHARDEV, name=CHANNEL),
    ]
