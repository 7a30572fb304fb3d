"""Access credentials: SSH public keys and passwords that are put into the guest."""

from collections.abc import Mapping

from corral.api.object import Struct


class SecretSource(Struct, kw_only=True):
    """Names a Secret of the same namespace.

    secret_name: the Secret.
    """

    secret_name: str


class CredentialSource(Struct, kw_only=True):
    """The source of credentials.

    secret: a Secret that holds them.
    """

    secret: SecretSource | None = None


class ThroughCloudInit(Struct, kw_only=True):
    """Cloud-init puts them in place at first boot."""


class KeysThroughAgent(Struct, kw_only=True):
    """The guest agent puts them in place while the machine runs.

    users: users that get the keys.
    """

    users: list[str]


class PasswordsThroughAgent(Struct, kw_only=True):
    """The guest agent sets them while the machine runs."""


class KeyPropagation(Struct, kw_only=True):
    """The way of keys into the guest: exactly one.

    no_cloud: through a cloudInitNoCloud volume.
    config_drive: through a cloudInitConfigDrive volume.
    qemu_guest_agent: through the guest agent.
    """

    no_cloud: ThroughCloudInit | None = None
    config_drive: ThroughCloudInit | None = None
    qemu_guest_agent: KeysThroughAgent | None = None


class PasswordPropagation(Struct, kw_only=True):
    """The way of passwords into the guest.

    qemu_guest_agent: through the guest agent.
    """

    qemu_guest_agent: PasswordsThroughAgent | None = None


class SshPublicKey(Struct, kw_only=True):
    """SSH public keys.

    source: where they come from.
    propagation_method: how they come into the guest: exactly one way.
    """

    source: CredentialSource
    propagation_method: KeyPropagation


class UserPassword(Struct, kw_only=True):
    """Passwords of users.

    source: where they come from.
    propagation_method: how they come into the guest.
    """

    source: CredentialSource
    propagation_method: PasswordPropagation


class AccessCredential(Struct, kw_only=True):
    """One set of credentials: exactly one of the two.

    ssh_public_key: SSH public keys.
    user_password: passwords of users.
    """

    ssh_public_key: SshPublicKey | None = None
    user_password: UserPassword | None = None


def keys_of(values: Mapping[str, bytes]) -> list[str]:
    """Return the public keys in a Secret whose values are ``authorized_keys`` files."""
    lines = [line.strip() for key in sorted(values) for line in _text(values[key]).splitlines()]
    return [line for line in dict.fromkeys(lines) if line and not line.startswith("#")]


def passwords_of(values: Mapping[str, bytes]) -> dict[str, str]:
    """Return the passwords in a Secret by user."""
    passwords = {user: _text(values[user]).strip() for user in sorted(values)}
    return {user: password for user, password in passwords.items() if password}


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
