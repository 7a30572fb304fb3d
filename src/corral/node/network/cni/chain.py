"""The plugins of a network configuration, one after the other, as CNI's libcni runs them."""

from collections.abc import Mapping
from pathlib import Path

from corral.api.kinds.vmi.addresses import POD_INTERFACE
from corral.api.object import Document
from corral.node.network.cni.attachments import Attachment
from corral.node.network.cni.plugin import SECONDS, run_plugin
from corral.node.network.namespaces import is_bound
from corral.node.network.netlink import NetworkError


async def add(attachment: Attachment, *, seconds: float = SECONDS) -> Document:
    """Attach a pod; return the result of the last plugin.  Raises NetworkError."""
    result: Document | None = None
    for plugin in attachment.configuration.plugins:
        result = await _run("ADD", attachment, plugin, result, seconds)
        if result is None:
            raise NetworkError(f'plugin type="{plugin["type"]}" failed (add): it printed no result')
    assert result is not None, "a configuration has plugins"
    return result


async def check(attachment: Attachment, *, seconds: float = SECONDS) -> None:
    """Raise NetworkError if an attachment is not as its plugins have made it."""
    for plugin in attachment.configuration.plugins:
        await _run("CHECK", attachment, plugin, attachment.result, seconds)


async def delete(attachment: Attachment, *, seconds: float = SECONDS) -> None:
    """Release what the plugins hold for a pod, whether or not they have added all of it.

    Raises NetworkError.
    """
    for plugin in reversed(attachment.configuration.plugins):
        await _run("DEL", attachment, plugin, attachment.result, seconds)


async def _run(
    command: str,
    attachment: Attachment,
    plugin: Document,
    previous: Document | None,
    seconds: float,
) -> Document | None:
    return await run_plugin(
        plugin["type"],
        command,
        attachment.configuration.for_plugin(plugin, attachment.capabilities, previous),
        variables(attachment),
        directories=[Path(each) for each in attachment.directories],
        seconds=seconds,
    )


def variables(attachment: Attachment) -> Mapping[str, str]:
    """Return the parameters of an attachment; CNI_ARGS are those that kubelets' runtimes pass."""
    pod = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": attachment.namespace,
        "K8S_POD_NAME": attachment.pod,
        "K8S_POD_INFRA_CONTAINER_ID": attachment.container,
        "K8S_POD_UID": attachment.pod_uid,
    }
    return {
        "CNI_CONTAINERID": attachment.container,
        # Empty, for DEL, where the namespace is gone: plugins then release the rest.
        "CNI_NETNS": str(attachment.path) if is_bound(attachment.path) else "",
        "CNI_IFNAME": POD_INTERFACE,
        "CNI_ARGS": ";".join(f"{name}={value}" for name, value in pod.items()),
    }
