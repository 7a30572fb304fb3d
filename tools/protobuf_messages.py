"""Makes src/corral/api/protobuf/messages.txt: which field of which message has which number.

    python tools/protobuf_messages.py VERSION API APIMACHINERY APIEXTENSIONS KUBE_AGGREGATOR

The table is printed.  The arguments are source trees of k8s.io/api, apimachinery,
apiextensions-apiserver and kube-aggregator, all of that version.  Their ``generated.proto`` files
tell numbers and types, and the tags of their Go structs what JSON calls a field, and when it is
left out.  What a line means is told in ``src/corral/api/protobuf/messages.py``.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GROUPS = (
    *("core", "admissionregistration", "apps", "authentication", "authorization", "autoscaling"),
    *("batch", "certificates", "coordination", "discovery", "events", "flowcontrol", "networking"),
    *("node", "policy", "rbac", "resource", "scheduling", "storage", "storagemigration"),
)
BETAS = ("admissionregistration/v1beta1", "policy/v1beta1", "scheduling/v1alpha3")
LETTERS = {
    "string": "s",
    "bool": "b",
    "bytes": "y",
    "double": "d",
    "int32": "i",
    "int64": "l",
    "k8s.io.apimachinery.pkg.apis.meta.v1.Time": "t",
    "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime": "u",
    "k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1": "j",
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "q",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "j",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "x",
    "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON": "j",
}
TEXTS = ("AttestationValue", "ExtraValue", "Verbs")
MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.DOTALL | re.MULTILINE)
FIELD = re.compile(
    r"^\s+(?:(optional|repeated) ([\w.]+)|map<string, ([\w.]+)>) (\w+) = (\d+)", re.MULTILINE
)
STRUCT = re.compile(r"^type (\w+) struct \{$(.*?)^\}", re.DOTALL | re.MULTILINE)
MEMBER = re.compile(r"^\t(?:(\w+)[ \t]+)?([\w.*\[\]]+)[ \t]+`(.*?)`", re.MULTILINE)
NUMBERED = re.compile(r'protobuf:"\w+,(\d+)')
SPELT = re.compile(r'json:"([^"]*)"')
GROUP = re.compile(r'^(?:const )?\s*GroupName\s+= "(.*)"', re.MULTILINE)


class Member(NamedTuple):
    """What the tags of a Go struct say of a field."""

    name: str
    is_pointer: bool
    is_told: bool


def main(version: str, api: Path, machinery: Path, extensions: Path, aggregator: Path) -> None:
    """Write the whole table."""
    sys.stdout.write(f"# Messages of Kubernetes {version}, made by tools/protobuf_messages.py.\n")
    folders = [api / group / version for group in GROUPS for version in ("v1", "v2")]
    folders += [api / beta for beta in BETAS]
    folders += [machinery / "pkg/apis/meta" / version for version in ("v1", "v1beta1")]
    folders += [
        extensions / "pkg/apis/apiextensions/v1",
        aggregator / "pkg/apis/apiregistration/v1",
    ]
    for folder in folders:
        if (folder / "generated.proto").exists():
            sys.stdout.writelines(f"{line}\n" for line in package(folder))


def package(folder: Path) -> Iterator[str]:
    text = (folder / "generated.proto").read_text()
    full = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    assert full is not None
    structs = dict(read_structs(folder))
    register = (folder / "register.go").read_text()
    found = GROUP.search(register)
    group = found[1] if found is not None else "meta.k8s.io"
    yield f"@{short(full[1])} {group + '/' if group else ''}{folder.name}"
    for name, content in MESSAGE.findall(text):
        if name in TEXTS or f"{full[1]}.{name}" in LETTERS or name in ("Timestamp", "WatchEvent"):
            continue
        members, is_kind = structs.get(name, ({}, False))
        fields = [field(full[1], members, match) for match in FIELD.findall(content)]
        yield f"{name}{'*' if is_kind else ''} {' '.join(fields)}".rstrip()


def short(full: str) -> str:
    return ".".join(full.split(".")[-2:])


def field(home: str, members: dict[int, Member], match: tuple[str, ...]) -> str:
    count, single, valued, spelt, number = match
    member = members.get(int(number)) or Member(spelt, is_pointer=True, is_told=False)
    shape = "{}" if valued else "[]" if count == "repeated" else ":"
    flags = ("?" if member.is_pointer else "") + ("!" if member.is_told else "")
    told = type_of(home, valued or single)
    return f"{member.name}={number}{shape}{told}{flags if shape == ':' else ''}"


def type_of(home: str, told: str) -> str:
    full = told.lstrip(".") if "." in told else told if told in LETTERS else f"{home}.{told}"
    if full in LETTERS:
        return LETTERS[full]
    holder, _, name = full.rpartition(".")
    if name in TEXTS:
        return "w"
    return name if holder == home else f"{short(holder)}.{name}"


def read_structs(folder: Path) -> Iterator[tuple[str, tuple[dict[int, Member], bool]]]:
    for file in sorted(folder.glob("*.go")):
        if file.name.startswith(("generated", "zz_generated")) or file.name.endswith("_test.go"):
            continue
        for name, content in STRUCT.findall(file.read_text()):
            members = {
                int(numbered[1]): member(named, told, tags)
                for named, told, tags in MEMBER.findall(content)
                if (numbered := NUMBERED.search(tags))
            }
            is_kind = re.search(r"^\t(metav1\.)?TypeMeta ", content, re.MULTILINE) is not None
            yield name, (members, is_kind)


def member(named: str, told: str, tags: str) -> Member:
    spelt = SPELT.search(tags)
    name, _, options = (spelt[1] if spelt else named[:1].lower() + named[1:]).partition(",")
    is_inline = not named or "inline" in options
    leaves_out = "omitempty" in options or "omitzero" in options
    return Member(
        "+" if is_inline and not name else name,
        told.startswith("*"),
        is_told=not leaves_out and not is_inline and spelt is not None,
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
