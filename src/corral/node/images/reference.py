"""Image references, parsed and completed as container runtimes do.

``cirros`` is ``docker.io/library/cirros:latest``.  The grammar is that of the distribution
project's reference package.
"""

import ipaddress
import re
from dataclasses import dataclass

from corral.node.images.error import INVALID_IMAGE_NAME, ImageError

_MAX_LENGTH = 1024
_MAX_NAME_LENGTH = 255
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]{{1,5}})?")
_REPOSITORY = re.compile(
    r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*"
)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A complete reference: registry, repository, and a tag or a digest or both."""

    registry: str
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.registry}/{self.repository}{tag}{digest}"

    @property
    def version(self) -> str:
        """The version to request; a digest takes precedence over a tag."""
        return self.digest or self.tag

    @property
    def host(self) -> str:
        """The registry's name without its port."""
        return re.sub(r":\d+$", "", self.registry).strip("[]")

    @property
    def loopback(self) -> bool:
        """True if the registry is on this host, so that plain HTTP is permitted."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Report whether a host is a loopback address or ``localhost``; resolves no names."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse(text: str) -> Reference:
    """Parse a reference.  Raises ImageError ``InvalidImageName``."""
    if len(text) > _MAX_LENGTH:
        raise _invalid(text[:64] + "…", f"it is longer than {_MAX_LENGTH} characters")
    name, _, digest = text.partition("@")
    if digest and not _DIGEST.fullmatch(digest):
        raise _invalid(text, "its digest is not sha256: and 64 lowercase hexadecimal digits")
    name, tag = _split_tag(name)
    registry, repository = _split_registry(name)
    if tag and not _TAG.fullmatch(tag):
        raise _invalid(text, f"its tag {tag!r} is malformed")
    if not _HOST.fullmatch(registry):
        raise _invalid(text, f"its registry {registry!r} is not a host name with an optional port")
    if not _REPOSITORY.fullmatch(repository):
        error = "must be lowercase" if _REPOSITORY.fullmatch(repository.lower()) else "is malformed"
        raise _invalid(text, f"its repository {repository!r} {error}")
    if len(registry) + 1 + len(repository) > _MAX_NAME_LENGTH:
        raise _invalid(text[:64] + "…", f"its name is longer than {_MAX_NAME_LENGTH} characters")
    if text.endswith(("@", ":")) or ":@" in text:
        raise _invalid(text, "nothing follows its last separator")
    return Reference(registry, repository, tag or ("" if digest else "latest"), digest)


def refers_to(text: str, name: str) -> bool:
    """Report whether a possibly incomplete reference refers to the image of a complete name."""
    try:
        return str(parse(text)) == name
    except ImageError:
        return False


def _split_tag(name: str) -> tuple[str, str]:
    """Split off the tag: a colon after the last slash; an earlier one begins a port."""
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return head + slash + last, tag


def _split_registry(name: str) -> tuple[str, str]:
    """Split off the registry: a first component that cannot be a user's name."""
    first, slash, rest = name.partition("/")
    if not slash or not (first == "localhost" or set(first) & set(".:[") or first != first.lower()):
        registry, repository = "docker.io", name
    else:
        registry, repository = first, rest
    if registry == "index.docker.io":
        registry = "docker.io"
    if registry == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    return registry, repository


def _invalid(text: str, error: str) -> ImageError:
    return ImageError(
        INVALID_IMAGE_NAME,
        f"couldn't parse image name {text!r}: invalid reference format: {error}",
        "write it as [REGISTRY/]REPOSITORY[:TAG][@sha256:DIGEST]",
    )
