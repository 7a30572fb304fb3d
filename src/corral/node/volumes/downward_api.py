"""downwardAPI: a disk with fields of the machine's pod, as in Kubernetes' downwardAPI volumes.

As in KubeVirt, the fields are the pod's: name and uid differ from the VMI's, labels and annotations
include the VMI's.
"""

from collections.abc import Mapping
from typing import Any

from lightkube.models.core_v1 import DownwardAPIVolumeFile, Pod

from corral.api.errors import NotFound
from corral.api.kinds.vmi.downward_api import KEYED, parse_field_path
from corral.api.kinds.vmi.volumes import Volume
from corral.node.hypervisor import Drive
from corral.node.volumes import seed
from corral.node.volumes.config_map import LABEL
from corral.node.volumes.seed import Files
from corral.node.volumes.source import VolumeContext, failed

_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    '"': r"\"",
    "\\": r"\\",
}


async def prepare(volume: Volume, context: VolumeContext) -> Drive:
    source = volume.downward_api
    assert source is not None
    return await seed.prepare(volume, context, source.volume_label or LABEL, _files)


async def _files(volume: Volume, context: VolumeContext) -> Files:
    source = volume.downward_api
    assert source is not None
    try:
        pod = await context.pod()
    except NotFound as error:
        raise failed(volume, "the machine's pod is gone") from error
    return {file.path: _content(file, pod).encode() for file in source.fields}


def _content(file: DownwardAPIVolumeFile, pod: Pod) -> str:
    """Return a field's value; admission has checked that the field exists."""
    assert file.fieldRef is not None
    field, key = parse_field_path(file.fieldRef.fieldPath)
    value: Any = getattr(pod.metadata, field)
    if field not in KEYED:
        return value or ""
    return (value or {}).get(key, "") if key else format_map(value or {})


def format_map(values: Mapping[str, str]) -> str:
    """Return labels or annotations as sorted lines ``key="value"`` (Kubernetes' FormatMap)."""
    return "\n".join(f"{key}={quote(values[key])}" for key in sorted(values))


def quote(text: str) -> str:
    """Return a text as Go's ``%q`` formats it."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable() and (letter == " " or not letter.isspace()):
        return letter
    code = ord(letter)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
