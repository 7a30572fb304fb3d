"""cloud-init data and access credentials from the flags of ``corral create vm``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.api import yaml
from corral.api.object import Document
from corral.cli.errors import Problem, from_os_error
from corral.cli.virtctl.create.parameters import fail, parameters
from corral.cli.virtctl.create.volumes import Disks

ACCESS = "access-cred"
DISK = "cloudinitdisk"
_SOURCES = {"nocloud": "cloudInitNoCloud", "configdrive": "cloudInitConfigDrive", "none": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBoot:
    """The flags for cloud-init and credentials; empty means unset."""

    cloud_init: str = "noCloud"
    user: str = ""
    password_file: Path | None = None
    ssh_key: Sequence[str] = ()
    ga_manage_ssh: bool | None = None
    access_cred: Sequence[str] = ()
    cloud_init_user_data: str = ""
    cloud_init_network_data: str = ""

    @property
    def source(self) -> str:
        """The cloud-init volume source; empty for none.  Raises Problem."""
        kind = _SOURCES.get(self.cloud_init.lower())
        if kind is None:
            error = f'invalid cloud-init data source type "{self.cloud_init}"'
            fail("cloud-init", f"{error}, supported values are: noCloud, configDrive, none")
        return kind

    @property
    def manages_keys(self) -> bool:
        """True if to set SELinux's boolean that lets the guest agent write SSH keys."""
        if self.ga_manage_ssh is not None:
            return self.ga_manage_ssh
        return any(
            "sshPublicKey" in one and "qemuGuestAgent" in one["sshPublicKey"]["propagationMethod"]
            for one in self.credentials()
        )

    def credentials(self) -> list[Document]:
        """Return the access credentials.  Raises Problem."""
        return [self._credential(text) for text in self.access_cred]

    def access(self) -> Document:
        """Return the field of the VMI's spec with the credentials; empty without any."""
        credentials = self.credentials()
        return {"accessCredentials": credentials} if credentials else {}

    def _credential(self, text: str) -> Document:
        values = parameters(ACCESS, text, "type src method user")
        source = {"secret": {"secretName": values.require("src")}}
        kind, method = values.get("type") or "ssh", values.get("method") or "ga"
        if kind == "password":
            if values.get("user"):
                fail(ACCESS, 'user cannot be specified with the type "password"')
            if method != "ga":
                fail(ACCESS, f'invalid method "{method}", supported values are: ga')
            return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}
        if kind != "ssh":
            fail(ACCESS, f'invalid type "{kind}", supported values are: ssh, password')
        if method == "ga":
            user = values.get("user") or self.user
            if not user:
                fail(ACCESS, 'user must be specified with the method "ga" ("user" or --user)')
            propagation: Document = {"qemuGuestAgent": {"users": [user]}}
        elif method.lower() in ("nocloud", "configdrive"):
            propagation = {"noCloud" if method.lower() == "nocloud" else "configDrive": {}}
        else:
            fail(
                ACCESS,
                f'invalid method "{method}", supported values are: ga, nocloud, configdrive',
            )
        return {"sshPublicKey": {"source": source, "propagationMethod": propagation}}

    def add_volume(self, disks: Disks) -> None:
        """Add the cloud-init volume, if there is any data.  Raises Problem."""
        settings = self._settings()
        generated = self.user or self.password_file or self.ssh_key or self.manages_keys
        if self.cloud_init_user_data and (self.user or self.password_file or self.ssh_key):
            flags = "--user, --password-file and --ssh-key"
            raise Problem(f"--cloud-init-user-data cannot be used together with {flags}")
        source: Document = {}
        if self.cloud_init_user_data:
            source["userDataBase64"] = self.cloud_init_user_data
        elif generated:
            source["userData"] = "#cloud-config\n" + yaml.dump(settings)
        if self.cloud_init_network_data:
            source["networkDataBase64"] = self.cloud_init_network_data
        elif any(_method_of(one) in ("noCloud", "configDrive") for one in self.credentials()):
            source.setdefault("userData", "#cloud-config\n")
        if not source:
            return
        if not self.source:
            raise Problem("first-boot settings need a cloud-init volume: --cloud-init is none")
        disks.add("cloud-init", DISK, {self.source: source})

    def _settings(self) -> Document:
        settings: Document = {}
        if self.user:
            settings["user"] = self.user
        if self.password_file is not None:
            try:
                password = self.password_file.read_text(encoding="utf-8").rstrip()
            except (OSError, UnicodeDecodeError) as error:
                if isinstance(error, OSError):
                    raise from_os_error(error) from error
                fail("password-file", f"{self.password_file} is not text")
            settings |= {"password": password, "chpasswd": {"expire": False}}
        if self.ssh_key:
            settings["ssh_authorized_keys"] = list(self.ssh_key)
        if self.manages_keys:
            settings["runcmd"] = [["setsebool", "-P", "virt_qemu_ga_manage_ssh", "on"]]
        return settings


def _method_of(credential: Document) -> str:
    kind = next(iter(credential.values()))
    return str(next(iter(kind["propagationMethod"])))
