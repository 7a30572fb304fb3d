"""Container disks come out of the registry that Debian ships, in every form it takes them."""

import asyncio
import base64
import contextlib
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from typing import NamedTuple

import pytest
from bench.cluster import free_port

from corral.node.host.destinations import ANYWHERE
from corral.node.images import Credential, ImageError
from corral.node.images.store import ImageStore
from corral.node.images.streams import zstd

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# Of user and secret, as htpasswd -B writes it.
HTPASSWD = "user:$2b$05$ChQgs2PQhONpnlWqg94TQOdgvzAUTgb7U1r84reuAJs.5clgPI3I2\n"
CREDENTIALS = "user:secret"
DISK = b"bootable" * 64 * 4096  # 2 MiB


def need(program, package):
    path = shutil.which(program)
    assert path, f"{program} is missing: apt install {package}"
    return path


@contextlib.contextmanager
def running(folder):
    """Debian's docker-registry on a port of its own, for one user; answers its address."""
    address = f"127.0.0.1:{free_port()}"
    (folder / "htpasswd").write_text(HTPASSWD)
    config = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": address},
        "auth": {"htpasswd": {"realm": "farm", "path": str(folder / "htpasswd")}},
    }
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [need("docker-registry", "docker-registry"), "serve", folder / "config.yml"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until_it_answers(address, process, folder / "log")
        yield address
    finally:
        process.kill()
        process.wait()


def wait_until_it_answers(address, process, log):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://{address}/v2/", timeout=20).close()
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        else:
            return
    raise AssertionError(log.read_text())


class Pusher:
    """Puts images into a registry, by the distribution specification."""

    def __init__(self, address):
        self.base = f"http://{address}/v2/demo/disk"

    def send(self, method, url, body, kind="application/octet-stream"):
        token = base64.b64encode(CREDENTIALS.encode()).decode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": kind}
        request = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.headers.get("Location", "")

    def blob(self, content, kind):
        place = self.send("POST", f"{self.base}/blobs/uploads/", b"")
        mark = "&" if "?" in place else "?"
        self.send("PUT", f"{place}{mark}digest={digest_of(content)}", content)
        return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}

    def manifest(self, tag, manifest):
        """Answer how an index names it."""
        content, kind = json.dumps(manifest).encode(), manifest["mediaType"]
        self.send("PUT", f"{self.base}/manifests/{tag}", content, kind)
        return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}

    def image(self, tag, disk, form, packing="gzip", architecture="amd64"):
        pack = {"gzip": gzip.compress, "zstd": zstd.compress}[packing]
        layers = [tar({"etc/motd": b"hi"}), tar({"disk/disk.img": disk})]
        platform = {"os": "linux", "architecture": architecture}
        diffs = [digest_of(layer) for layer in layers]
        config = platform | {"rootfs": {"type": "layers", "diff_ids": diffs}}
        manifest = {
            "schemaVersion": 2,
            "mediaType": form.manifest,
            "config": self.blob(json.dumps(config).encode(), form.config),
            "layers": [self.blob(pack(each), form.layer + packing) for each in layers],
        }
        return self.manifest(tag, manifest) | {"platform": platform}

    def index(self, tag, form, *images):
        index = {"schemaVersion": 2, "mediaType": form.index, "manifests": images}
        self.manifest(tag, index)


class Form(NamedTuple):
    """The media types of one of the two families."""

    index: str
    manifest: str
    config: str
    layer: str


OCI = Form(
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.oci.image.layer.v1.tar+",
)
DOCKER = Form(
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.",
)


def digest_of(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A registry that asks for a password and holds the image in several forms."""
    with running(tmp_path_factory.mktemp("registry")) as address:
        pusher = Pusher(address)
        pusher.image("oci-zstd", DISK, OCI, "zstd")
        for name, form in (("oci", OCI), ("docker", DOCKER)):
            other = pusher.image("other", b"other" * 512, form, architecture="arm64")
            pusher.index(f"{name}-index", form, other, pusher.image(name, DISK, form))
        yield address


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "images", destinations=ANYWHERE)


@pytest.mark.parametrize("tag", ["oci", "oci-index", "oci-zstd", "docker", "docker-index"])
async def test_disks_in_every_format(store, registry, tag):
    image = await store.ensure(
        f"{registry}/demo/disk:{tag}",
        policy="Always",
        credentials=[Credential(registry, "user", "secret")],
    )
    assert image.path.read_bytes() == DISK
    assert image.manifest.startswith("sha256:")
    by_digest = f"{registry}/demo/disk@{image.manifest}"
    credentials = [Credential(f"{registry}/demo", "user", "secret")]
    again = await store.ensure(by_digest, policy="IfNotPresent", credentials=credentials)
    assert again.path == image.path, "the same content is kept once"


@pytest.mark.parametrize("credentials", [[], [("user", "wrong")]])
async def test_unauthenticated_pulls_are_rejected(store, registry, credentials):
    given = [Credential(registry, *each) for each in credentials]
    with pytest.raises(ImageError, match="needs credentials"):
        await store.ensure(f"{registry}/demo/disk:oci", policy="Always", credentials=given)


async def test_a_missing_image_is_reported(store, registry):
    credentials = [Credential(registry, "user", "secret")]
    for name in ("demo/disk:never", "never"):
        with pytest.raises(ImageError, match="not found in the registry"):
            await store.ensure(f"{registry}/{name}", policy="Always", credentials=credentials)


async def test_twenty_waiters_share_a_pull(store, registry):
    credentials = [Credential(registry, "user", "secret")]
    name = f"{registry}/demo/disk:oci-index"
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(store.ensure(name, policy="Always", credentials=credentials))
            for _ in range(20)
        ]
    assert len({task.result() for task in tasks}) == 1
