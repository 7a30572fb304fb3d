"""First-boot settings and credentials of a VirtualMachine by flags of ``corral create vm``."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.api import yaml
from corral.api.object import Document
from corral.cli.errors import Problem, from_os_error
from corral.cli.virtctl.create.parameters import parameters, wrong
from corral.cli.virtctl.create.volumes import Disks

ACCESS = "access-cred"
DISK = "cloudinitdisk"
_SOURCES = {"nocloud": "cloudInitNoCloud", "configdrive": "cloudInitConfigDrive", "none": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBoot:
    """What was asked for by flags; empty where it was not."""

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
        """The kind of volume that holds the settings; empty for none.  Raises Problem."""
        kind = _SOURCES.get(self.cloud_init.lower())
        if kind is None:
            why = f'invalid cloud-init data source type "{self.cloud_init}", supported values are: '
            wrong("cloud-init", f"{why}noCloud, configDrive, none")
        return kind

    @property
    def manages_keys(self) -> bool:
        """Whether the guest's agent is to be allowed to write keys, on guests that ask."""
        if self.ga_manage_ssh is not None:
            return self.ga_manage_ssh
        return any(
            "sshPublicKey" in one and "qemuGuestAgent" in one["sshPublicKey"]["propagationMethod"]
            for one in self.credentials()
        )

    def credentials(self) -> list[Document]:
        """Credentials that the machine is to have.  Raises Problem."""
        return [self._credential(text) for text in self.access_cred]

    def access(self) -> Document:
        """The part of the machine's spec that is about credentials; nothing without any."""
        credentials = self.credentials()
        return {"accessCredentials": credentials} if credentials else {}

    def _credential(self, text: str) -> Document:
        said = parameters(ACCESS, text, "type src method user")
        source = {"secret": {"secretName": said.need("src")}}
        kind, method = said.get("type") or "ssh", said.get("method") or "ga"
        if kind == "password":
            if said.get("user"):
                wrong(ACCESS, 'user cannot be specified with the type "password"')
            if method != "ga":
                wrong(ACCESS, f'invalid method "{method}", supported values are: ga')
            return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}
        if kind != "ssh":
            wrong(ACCESS, f'invalid type "{kind}", supported values are: ssh, password')
        if method == "ga":
            user = said.get("user") or self.user
            if not user:
                wrong(ACCESS, 'user must be specified with the method "ga" ("user" or --user)')
            way: Document = {"qemuGuestAgent": {"users": [user]}}
        elif method.lower() in ("nocloud", "configdrive"):
            way = {"noCloud" if method.lower() == "nocloud" else "configDrive": {}}
        else:
            wrong(
                ACCESS,
                f'invalid method "{method}", supported values are: ga, nocloud, configdrive',
            )
        return {"sshPublicKey": {"source": source, "propagationMethod": way}}

    def add_volume(self, disks: Disks) -> None:
        """Add the volume with the settings, where there are any.  Raises Problem."""
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
        elif any(_way_of(one) in ("noCloud", "configDrive") for one in self.credentials()):
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
                wrong("password-file", f"{self.password_file} is not text")
            settings |= {"password": password, "chpasswd": {"expire": False}}
        if self.ssh_key:
            settings["ssh_authorized_keys"] = list(self.ssh_key)
        if self.manages_keys:
            settings["runcmd"] = [["setsebool", "-P", "virt_qemu_ga_manage_ssh", "on"]]
        return settings


def _way_of(credential: Document) -> str:
    kind = next(iter(credential.values()))
    return str(next(iter(kind["propagationMethod"])))
