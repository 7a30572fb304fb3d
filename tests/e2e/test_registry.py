"""Container disks come out of the registry that Debian ships, as its own tools have put them in."""

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import shutil
import socket
import subprocess
import tarfile
import urllib.error
import urllib.request

import pytest

from corral.node.images import Credential, ImageError
from corral.node.images.store import ImageStore
from corral.node.images.streams import zstd

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

# Of user and secret, as htpasswd -B writes it.
HTPASSWD = "user:$2b$05$ChQgs2PQhONpnlWqg94TQOdgvzAUTgb7U1r84reuAJs.5clgPI3I2\n"
CREDENTIALS = "user:secret"
DISK = b"bootable" * 64 * 4096  # 2 MiB


def need(program, package):
    path = shutil.which(program)
    assert path, f"{program} is missing: apt install {package}"
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(folder, *, auth):
    """Debian's docker-registry on a port of its own; answers its address."""
    address = f"127.0.0.1:{free_port()}"
    (folder / "htpasswd").write_text(HTPASSWD)
    config = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": address},
    }
    if auth:
        config["auth"] = {"htpasswd": {"realm": "farm", "path": str(folder / "htpasswd")}}
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
    for _ in range(200):
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://{address}/v2/", timeout=1).close()
        except urllib.error.HTTPError as error:
            error.close()
            return
        except OSError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        else:
            return
    raise AssertionError(log.read_text())


class Layout:
    """An OCI image layout in a folder."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "blobs" / "sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, content, kind, **more):
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs" / "sha256" / digest).write_bytes(content)
        return {
            "mediaType": f"application/vnd.oci.image.{kind}",
            "digest": f"sha256:{digest}",
            "size": len(content),
        } | more

    def image(self, disk, architecture, packing="gzip"):
        pack = {"gzip": gzip.compress, "zstd": zstd.compress}[packing]
        layers = [tar({"etc/motd": b"hi"}), tar({"disk/disk.img": disk})]
        diffs = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        platform = {"os": "linux", "architecture": architecture}
        config = platform | {"rootfs": {"type": "layers", "diff_ids": diffs}}
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.blob(json.dumps(config).encode(), "config.v1+json"),
            "layers": [self.blob(pack(each), f"layer.v1.tar+{packing}") for each in layers],
        }
        return self.blob(json.dumps(manifest).encode(), "manifest.v1+json", platform=platform)

    def index(self, manifests):
        content = json.dumps({"schemaVersion": 2, "manifests": manifests})
        (self.folder / "index.json").write_text(content)


def tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """An image for two platforms; the guests' one holds DISK."""
    layout = Layout(tmp_path_factory.mktemp("layout"))
    pair = [layout.image(b"other" * 512, "arm64"), layout.image(DISK, "amd64")]
    kind = "application/vnd.oci.image.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": kind, "manifests": pair}
    images = {
        "both": layout.blob(json.dumps(index).encode(), "index.v1+json"),
        "one": pair[1],
        "zstd": layout.image(DISK, "amd64", "zstd"),
    }
    name_of = "org.opencontainers.image.ref.name"
    layout.index([each | {"annotations": {name_of: name}} for name, each in images.items()])
    return layout.folder


@pytest.fixture(scope="module")
def registry(tmp_path_factory, layout):
    """A registry that asks for a password and holds the image in several forms."""
    with running(tmp_path_factory.mktemp("registry"), auth=True) as address:
        for tag, source, options in (
            ("index", "both", ["--all"]),
            ("index-docker", "both", ["--all", "--format", "v2s2"]),
            ("oci", "one", []),
            ("docker", "one", ["--format", "v2s2"]),
            ("zstd", "zstd", []),
        ):
            target = f"docker://{address}/demo/disk:{tag}"
            command = [need("skopeo", "skopeo"), "copy", "--insecure-policy", "--quiet"]
            command += ["--dest-tls-verify=false", "--dest-creds", CREDENTIALS, *options]
            subprocess.run([*command, f"oci:{layout}:{source}", target], check=True)
        yield address


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "images")


@pytest.mark.parametrize("tag", ["index", "index-docker", "oci", "docker", "zstd"])
async def test_a_disk_in_every_form(store, registry, tag):
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
async def test_strangers_stay_out(store, registry, credentials):
    given = [Credential(registry, *each) for each in credentials]
    with pytest.raises(ImageError, match="needs credentials"):
        await store.ensure(f"{registry}/demo/disk:oci", policy="Always", credentials=given)


async def test_an_image_that_does_not_exist(store, registry):
    credentials = [Credential(registry, "user", "secret")]
    for name in ("demo/disk:never", "never"):
        with pytest.raises(ImageError, match="not found in the registry"):
            await store.ensure(f"{registry}/{name}", policy="Always", credentials=credentials)


async def test_twenty_waiters_share_a_pull(store, registry):
    credentials = [Credential(registry, "user", "secret")]
    name = f"{registry}/demo/disk:index"
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(store.ensure(name, policy="Always", credentials=credentials))
            for _ in range(20)
        ]
    assert len({task.result() for task in tasks}) == 1
