"""The store as its users see it: pulls against a registry on this machine, imports, removal."""

import asyncio
import gzip
import lzma
import shutil
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from backports import zstd
from structlog.testing import capture_logs

from corral.aio import Background
from corral.node.host.destinations import ANYWHERE
from corral.node.images.credentials import Credential, SecretName
from corral.node.images.error import ImageError
from corral.node.images.examples import build_hint, with_option
from corral.node.images.limits import Limits
from corral.node.images.reference import parse
from corral.node.images.store import ImageStore


@pytest.fixture
def store(tmp_path, limits):
    return ImageStore(tmp_path / "images", destinations=ANYWHERE, limits=limits)


@pytest.fixture
def source(tmp_path, shapes):
    """A disk to be imported."""
    path = tmp_path / "disk"
    path.write_bytes(shapes.disk())
    return path


@asynccontextmanager
async def watched(store):
    """Changes of images that the store reports while it watches for those of other processes."""
    changes = asyncio.Queue()
    store.handle(changes.put_nowait)
    async with Background() as tasks:
        tasks.start(store.watch(), name="images")
        await asyncio.sleep(0)
        yield changes


def leftovers(store):
    return [
        each
        for folder in (store._work, store._blobs)
        for each in folder.iterdir()
        if each.name != ".lock"
    ]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress], ids=["plain", "gz", "zst"])
async def test_a_disk_is_extracted_from_its_layer(store, registry, shapes, pack):
    content = shapes.disk()
    name = registry.add("demo/disk", shapes.tar({"disk": None, "disk/a.img": content}), pack=pack)
    image = await store.ensure(name, policy="IfNotPresent")
    assert image.path.read_bytes() == content
    assert (image.format, image.virtual_size, image.source) == ("raw", len(content), "pull")
    assert image.digest == shapes.digest_of(content)
    assert image.path.stat().st_mode & 0o777 == 0o444
    assert store.find(name) == image
    assert leftovers(store) == []


async def test_progress_ends_with_the_total(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    seen = []
    await store.ensure(name, policy="Always", progress=seen.append)
    await asyncio.sleep(0)
    last = {each.stage: each for each in seen}
    assert {"download", "unpack"} <= last.keys()
    assert last["download"].done_bytes == last["download"].total_bytes > 0


async def test_policy_always_queries_the_registry_and_downloads_changes_only(
    store, registry, shapes
):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    first = await store.ensure(name, policy="Always")
    assert await store.ensure(name, policy="Always") == first
    assert (registry.count("/manifests/"), registry.count("/blobs/")) == (2, 1)
    registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk(fill=b"e")}))
    assert (await store.ensure(name, policy="Always")).digest != first.digest
    assert not first.path.exists(), "a disk that no name means is deleted"


async def test_another_name_of_the_same_image_downloads_no_layer(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    first = await store.ensure(name, policy="Always")
    other = await store.ensure(f"{registry.address}/demo/disk@{first.manifest}", policy="Always")
    assert (other.path, registry.count("/blobs/")) == (first.path, 1)
    await store.remove(name)
    assert store.find(other.reference) == other
    assert other.path.exists()


async def test_pulls_that_share_a_layer_wait_for_each_other(store, registry, shapes):
    base = shapes.tar({"etc/motd": b"hello"})
    layers = [shapes.tar({"disk/a.img": shapes.disk(fill=fill)}) for fill in (b"1", b"2")]
    names = [registry.add(f"demo/{number}", base, layer) for number, layer in enumerate(layers)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(store.ensure(name, policy="Always")) for name in names]
    assert [task.result().path.read_bytes()[:1] for task in tasks] == [b"1", b"2"]


async def test_pulls_that_share_layers_do_not_deadlock(tmp_path, registry, shapes):
    store = ImageStore(tmp_path / "images", destinations=ANYWHERE, limits=Limits(pull_seconds=60))
    layers = [shapes.tar({f"etc/{number}": b""}) for number in range(5)]
    layers.append(shapes.tar({"disk/a.img": shapes.disk()}))
    names = [registry.add("demo/1", *layers), registry.add("demo/2", *reversed(layers))]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(store.ensure(name, policy="Always")) for name in names]
    assert len({task.result().digest for task in tasks}) == 1


async def test_a_pull_has_a_timeout(tmp_path, registry, shapes):
    store = ImageStore(tmp_path / "images", destinations=ANYWHERE, limits=Limits(pull_seconds=0.2))
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    registry.fault.gate = asyncio.Event()
    with pytest.raises(ImageError, match=r"it took longer than 0\.2 seconds"):
        await store.ensure(name, policy="Always")
    registry.fault.gate.set()


async def test_policy_if_not_present_does_not_query_again(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    await store.ensure(name, policy="IfNotPresent")
    await store.ensure(name, policy="IfNotPresent")
    assert registry.count("/manifests/") == 1


async def test_policy_never_is_named_in_the_error(store):
    with pytest.raises(ImageError, match="is not present with pull policy of Never") as caught:
        await store.ensure("cirros", policy="Never")
    assert caught.value.reason == "ErrImageNeverPull"


async def test_an_imported_disk_is_used_under_every_policy(store, tmp_path, shapes):
    source = tmp_path / "disk.raw"
    source.write_bytes(shapes.disk())
    names = ["kubevirt/cirros-container-disk-demo", "registry.example/cirros:1"]
    image = await store.import_disk(source, names)
    assert image.reference == "docker.io/kubevirt/cirros-container-disk-demo:latest"
    for policy in ("Always", "IfNotPresent", "Never"):
        found = await store.ensure(names[1], policy=policy, path="/disk/other.img")
        assert (found.path, found.source) == (image.path, "import")
    assert [each.reference for each in store.images()] == sorted(
        [image.reference, "registry.example/cirros:1"]
    )


@pytest.mark.parametrize("known", [False, True])
async def test_an_import_during_a_pull_is_kept(store, registry, shapes, tmp_path, known):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    path = "/v2/demo/disk/manifests/latest"
    if known:  # its disk is there under another name of the repository
        registry.manifests["/v2/demo/disk/manifests/2"] = registry.manifests[path]
        await store.ensure(name.replace(":latest", ":2"), policy="Always")
    registry.waiting.clear()
    gate = registry.fault.manifest_gates[path] = asyncio.Event()
    pull = asyncio.create_task(store.ensure(name, policy="Always"))
    await registry.waiting.wait()
    source = tmp_path / "disk.raw"
    source.write_bytes(shapes.disk(fill=b"i"))
    imported = await store.import_disk(source, [name])
    gate.set()
    assert (await pull).digest == imported.digest
    assert store.find(name) == imported


async def test_many_waiters_share_one_pull(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(store.ensure(name, policy="Always")) for _ in range(20)]
    assert len({task.result() for task in tasks}) == 1
    assert (registry.count("/manifests/"), registry.count("/blobs/")) == (1, 1)


async def test_many_waiters_share_one_failure(store, registry):
    name = f"{registry.address}/missing"
    waiters = [asyncio.create_task(store.ensure(name, policy="Always")) for _ in range(5)]
    done, _ = await asyncio.wait(waiters)
    assert all(isinstance(task.exception(), ImageError) for task in done)
    assert registry.count("/manifests/") == 1


async def test_a_pull_continues_when_one_waiter_is_cancelled(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    registry.fault.gate = asyncio.Event()
    first = asyncio.create_task(store.ensure(name, policy="Always"))
    await registry.waiting.wait()
    second = asyncio.create_task(store.ensure(name, policy="Always"))
    await asyncio.sleep(0)
    first.cancel()
    registry.fault.gate.set()
    assert (await second).source == "pull"
    assert first.cancelled()


async def test_the_pull_ends_with_its_last_waiter(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    registry.fault.gate = asyncio.Event()
    only = asyncio.create_task(store.ensure(name, policy="Always"))
    await registry.waiting.wait()
    only.cancel()
    await asyncio.wait([only])
    registry.fault.gate.set()
    assert store.find(name) is None
    assert not store._pulls._flights


async def test_a_later_pull_resumes_an_interrupted_one(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}), pack=bytes)
    registry.fault.cut_after = [1000]
    registry.fault.gate = asyncio.Event()
    task = asyncio.create_task(store.ensure(name, policy="Always"))
    await registry.waiting.wait()
    registry.waiting.clear()
    registry.fault.gate.set()
    await registry.waiting.wait()  # asks for the rest
    task.cancel()
    await asyncio.wait([task])
    registry.authorizations.clear()
    seen = []
    await store.ensure(name, policy="Always", progress=seen.append)
    await asyncio.sleep(0)
    downloaded = [each.done_bytes for each in seen if each.stage == "download"]
    assert downloaded[0] == 0, "a pull is announced before the registry has answered"
    assert downloaded[1] >= 1000


async def test_a_pull_secret_authenticates_to_the_registry(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    right = Credential(registry.address, "user", "secret")
    wrong = Credential(f"{registry.address}/demo", "user", "wrong")
    for scheme in ("basic", "bearer"):
        registry.scheme = scheme
        with pytest.raises(ImageError, match="needs credentials"):
            await store.ensure(name, policy="Always")
        assert await store.ensure(name, policy="Always", credentials=[wrong, right])


def of_secret(registry, namespace="a", uid="1", password="secret"):
    """A credential as it stands in a Secret."""
    return Credential(registry.address, "user", password, SecretName(namespace, "pull", uid))


@pytest.fixture
async def private(store, registry, shapes):
    """An image that came with the secret of a tenant."""
    registry.scheme = "basic"
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    await store.ensure(name, policy="IfNotPresent", credentials=[of_secret(registry)])
    return name


@pytest.mark.parametrize("policy", ["IfNotPresent", "Always"])
async def test_an_image_pulled_with_a_secret_is_not_accessible_to_others(
    store, registry, private, policy
):
    wrong = of_secret(registry, "b", "2", "guessed")
    for credentials in ([], [wrong]):
        with pytest.raises(ImageError, match="pull access denied") as refused:
            await store.ensure(private, policy=policy, credentials=credentials)
        assert refused.value.reason == "ErrImagePull"


async def test_an_inaccessible_image_is_reported_as_not_present(store, registry, private):
    with pytest.raises(ImageError) as refused:
        await store.ensure(private, policy="Never")
    assert refused.value.reason == "ErrImageNeverPull"
    assert str(refused.value) == (
        f"Container image {private!r} is not present with pull policy of Never"
    )


async def test_a_secret_that_pulled_an_image_is_not_checked_again(
    store, registry, private, tmp_path
):
    """Nor is one that says the same; one that says something else by now is still that secret."""
    before = len(registry.requests)
    again = ImageStore(store._references.parent)  # as after a restart
    for credential in (
        of_secret(registry),
        of_secret(registry, "b", "2"),
        of_secret(registry, password="changed"),
    ):
        for policy in ("IfNotPresent", "Never"):
            assert await again.ensure(private, policy=policy, credentials=[credential])
    assert len(registry.requests) == before
    records = list(store._references.glob("*.json"))
    assert [each.stat().st_mode & 0o777 for each in records] == [0o600]
    assert b"secret" not in records[0].read_bytes().replace(b'"secrets"', b"")


async def test_access_is_granted_after_authentication_to_the_registry(store, registry, private):
    registry.user = "user:other"
    other = of_secret(registry, "b", "2", "other")
    assert await store.ensure(private, policy="IfNotPresent", credentials=[other])
    registry.user = "nobody:knows"
    for credential in (of_secret(registry), other):
        assert await store.ensure(private, policy="IfNotPresent", credentials=[credential])
    assert registry.count("/blobs/") == 1, "to be let in is all that it takes"


async def test_public_images_are_accessible_to_all(store, registry, shapes):
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    await store.ensure(name, policy="IfNotPresent", credentials=[of_secret(registry)])
    before = len(registry.requests)
    assert await store.ensure(name, policy="Never")
    assert len(registry.requests) == before


async def test_images_of_the_administrator_are_accessible_to_all(store, registry, shapes, source):
    registry.scheme = "basic"
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    own = Credential(registry.address, "user", "secret")
    await store.ensure(name, policy="Always", credentials=[own])
    await store.import_disk(source, ["imported"])
    for each in (name, "imported"):
        assert await store.ensure(each, policy="Never")


async def test_concurrent_pulls_authenticate_separately(store, registry, shapes):
    registry.scheme = "basic"
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    registry.fault.gate = asyncio.Event()
    right = asyncio.create_task(
        store.ensure(name, policy="IfNotPresent", credentials=[of_secret(registry)])
    )
    await registry.waiting.wait()
    for credentials in ([], [of_secret(registry, "b", "2", "guessed")]):
        with pytest.raises(ImageError, match="pull access denied"):
            await store.ensure(name, policy="IfNotPresent", credentials=credentials)
    registry.fault.gate.set()
    assert await right


async def test_a_manifest_alone_grants_no_access_to_disks(store, registry, private):
    """Anybody's registry can show a manifest that it has no layers of."""
    kind, body = registry.manifests["/v2/demo/disk/manifests/latest"]
    registry.scheme = ""
    registry.manifests["/v2/evil/disk/manifests/latest"] = (kind, body)
    registry.blobs.clear()
    with pytest.raises(ImageError):
        await store.ensure(f"{registry.address}/evil/disk:latest", policy="Always")


async def test_a_slow_registry_grants_no_access_to_other_disks(store, registry, shapes):
    """What a name meant when a pull began, it need not mean when the registry answers."""
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    await store.ensure(name, policy="Always")
    registry.manifests["/v2/evil/disk/manifests/latest"] = registry.manifests[
        "/v2/demo/disk/manifests/latest"
    ]
    evil = f"{registry.address}/evil/disk:latest"
    registry.waiting.clear()
    gate = registry.fault.manifest_gates["/v2/evil/disk/manifests/latest"] = asyncio.Event()
    pull = asyncio.create_task(store.ensure(evil, policy="Always"))
    await registry.waiting.wait()
    registry.scheme = "basic"
    registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk(fill=b"p")}))
    await store.ensure(name, policy="Always", credentials=[of_secret(registry)])
    gate.set()
    with pytest.raises(ImageError, match="replaced"):
        await pull
    assert store.find(evil) is None


async def test_imports_of_any_process_are_notified(store, registry, tmp_path, shapes, source):
    pulled = registry.add("demo/disk", shapes.tar({"disk/a.img": shapes.disk()}))
    async with watched(store) as changes:
        other = ImageStore(tmp_path / "images", destinations=ANYWHERE)
        await other.import_disk(source, ["lab/one:1", "lab/two:1"])
        async with asyncio.timeout(60):
            names = [(await changes.get()).reference for _ in range(2)]
        await other.remove("lab/one:1")
        await store.ensure(pulled, policy="Always")
        await store.ensure(pulled, policy="Always")
        await other.import_disk(source, ["lab/last:1"])
        async with asyncio.timeout(60):
            last = await changes.get()
    assert names == ["docker.io/lab/one:1", "docker.io/lab/two:1"]
    assert last.reference == "docker.io/lab/last:1"


async def test_a_recreated_names_directory_is_watched_again(store, tmp_path, source):
    async with watched(store) as changes:
        for name in ("lab/one:1", "lab/two:1"):
            shutil.rmtree(tmp_path / "images" / "references")
            await ImageStore(tmp_path / "images").import_disk(source, [name])
            async with asyncio.timeout(60):
                while (await changes.get()).reference != f"docker.io/{name}":
                    pass  # those that were there are notified again


@pytest.mark.parametrize("lost", ["images/references", "images"])
async def test_moved_directories_are_recreated(store, tmp_path, lost, source):
    async with watched(store) as changes:
        (tmp_path / lost).rename(tmp_path / "away")
        async with asyncio.timeout(60):
            while not (tmp_path / "images" / "references").exists():
                await asyncio.sleep(0.01)
        await ImageStore(tmp_path / "images").import_disk(source, ["lab/one:1"])
        async with asyncio.timeout(60):
            assert (await changes.get()).reference == "docker.io/lab/one:1"


async def test_an_import_recreates_missing_directories(store, tmp_path, source):
    shutil.rmtree(tmp_path / "images")
    assert (await store.import_disk(source, ["demo"])).path.exists()


async def test_disks_without_names_are_kept_and_listed(store, tmp_path, shapes):
    source, other = tmp_path / "disk", tmp_path / "other"
    source.write_bytes(shapes.disk())
    other.write_bytes(shapes.disk(fill=b"e"))
    image = await store.import_disk(source, ["demo"])
    references = tmp_path / "images" / "references"
    with capture_logs() as logged:
        async with watched(store):
            references.rename(tmp_path / "away")
            async with asyncio.timeout(60):
                while not logged:
                    await asyncio.sleep(0.01)
    assert [(each["event"], each["log_level"]) for each in logged] == [
        ("images have lost their names", "error")
    ]
    assert logged[0]["details"].startswith(
        f"1 of the disks in {image.path.parent} have lost their names"
    )
    assert store.find("demo") is None
    anew = ImageStore(tmp_path / "images", destinations=ANYWHERE)
    await anew.import_disk(other, ["other"])
    await anew.remove("other")
    assert "2 of the disks" in anew.lost_names()
    shutil.copytree(tmp_path / "away", references, dirs_exist_ok=True)
    assert store.find("demo") == image
    await store.import_disk(other, ["other"])
    assert store.lost_names() == ""
    await store.remove("other")
    assert [*image.path.parent.iterdir()] == [image.path], "deleted, as nothing is lost any more"


async def test_disks_without_names_can_be_removed(store, tmp_path, source):
    image = await store.import_disk(source, ["demo"])
    shutil.rmtree(tmp_path / "images" / "references")
    anew = ImageStore(tmp_path / "images", destinations=ANYWHERE)
    *_, mark = anew.lost_names().removesuffix(" gives them up").split()
    Path(mark).unlink()
    await anew.import_disk(source, ["other"])
    await anew.remove("other")
    assert not image.path.exists()


async def test_several_names_can_have_the_same_disk(store, tmp_path):
    source = tmp_path / "disk.img"
    source.write_bytes(b"\1" * 4096)
    image = await store.import_disk(source, ["lab/one:1"])
    tagged = await store.tag("lab/one:1", ["lab/two:1", "quay.io/lab/three"])
    assert (tagged.reference, tagged.source) == ("docker.io/lab/two:1", "import")
    assert tagged.path == image.path
    await store.remove("lab/one:1")
    await store.remove("lab/two:1")
    kept = await store.ensure("quay.io/lab/three", policy="Always")
    assert kept.path.read_bytes() == source.read_bytes()
    with pytest.raises(ImageError, match=r"no image docker\.io/lab/one:1"):
        await store.tag("lab/one:1", ["lab/four:1"])
    with pytest.raises(ImageError):
        await store.tag("quay.io/lab/three", ["lab/four:1", "not a name"])
    assert store.find("lab/four:1") is None


async def test_an_unreachable_registry_is_reported_with_the_alternative(store):
    with pytest.raises(ImageError) as caught:
        await store.ensure("127.0.0.1:1/lab/fedora:40", policy="Always")
    name = "127.0.0.1:1/lab/fedora:40"
    assert f"corral image import FILE {name}" in caught.value.hint
    assert f"in its place: corral image build-demo --as {name}" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("kubevirt/cirros-container-disk-demo", "corral image build-demo makes it here"),
        (
            "a.b/kubevirt/cirros-registry-disk-demo:v1",
            "corral image build-demo --as a.b/kubevirt/cirros-registry-disk-demo:v1 makes it here",
        ),
        ("lab/disk:1", "import a disk under that name: corral image import FILE lab/disk:1"),
    ],
)
async def test_a_missing_image_is_reported_with_the_remedy(store, name, hint):
    with pytest.raises(ImageError) as caught:
        await store.ensure(name, policy="Never")
    assert caught.value.hint == hint


def test_the_demo_guest_is_not_suggested_for_a_digest():
    assert build_hint(parse(f"kubevirt/cirros-container-disk-demo@sha256:{'0' * 64}")) == ""


async def test_the_demo_image_is_suggested_if_the_registry_lacks_it(store, registry):
    name = f"{registry.address}/kubevirt/cirros-container-disk-demo:v1"
    with pytest.raises(ImageError, match="not found in the registry") as caught:
        await store.ensure(name, policy="Always")
    assert caught.value.hint.endswith(f"; corral image build-demo --as {name} makes it here")


@pytest.mark.parametrize(
    ("layers", "path", "message"),
    [
        ([{"etc/passwd": b""}], "", "no file found in folder /disk, no disk present"),
        ([{"disk/a": b"", "disk/b": b""}], "", "more than one file found in folder /disk"),
        ([{"disk/a": bytes(512)}], "/disk/b", "no file /disk/b in the image"),
        ([{"disk/readme.txt": b"hello"}], "", "is not a disk"),
        ([{"disk/a": b"KDMV" + bytes(508)}], "", "VMDK"),
    ],
)
async def test_an_image_without_a_usable_disk(store, registry, shapes, layers, path, message):
    name = registry.add("demo/disk", *[shapes.tar(layer) for layer in layers])
    with pytest.raises(ImageError, match=message) as caught:
        await store.ensure(name, policy="Always", path=path)
    assert caught.value.reason == "ErrImagePull"
    assert name in str(caught.value)
    assert leftovers(store) == []


async def test_a_layer_that_is_no_archive(store, registry):
    name = registry.add("demo/disk", b"not a tar file" * 100)
    with pytest.raises(ImageError, match="layer is not a tar file"):
        await store.ensure(name, policy="Always")


async def test_a_decompression_bomb_is_rejected_and_removed(tmp_path, registry, shapes):
    store = ImageStore(
        tmp_path / "images", destinations=ANYWHERE, limits=Limits(unpacked_bytes=1 << 20)
    )
    name = registry.add("demo/disk", shapes.tar({"disk/a.img": bytes(4 << 20)}))
    with pytest.raises(ImageError, match="expands to more than 1048576 bytes"):
        await store.ensure(name, policy="Always")
    assert leftovers(store) == []
    assert list(store._disks.iterdir()) == []


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, lzma.compress, zstd.compress], ids=["raw", "gz", "xz", "zst"]
)
async def test_compressed_files_are_imported(store, tmp_path, shapes, pack):
    source = tmp_path / "disk"
    source.write_bytes(pack(shapes.disk()))
    image = await store.import_disk(source, ["demo"])
    assert image.path.read_bytes() == shapes.disk()


async def test_sparse_files_stay_sparse(store, tmp_path):
    source = tmp_path / "disk"
    with source.open("wb") as file:
        file.truncate(64 << 20)
    image = await store.import_disk(source, ["demo"])
    assert image.virtual_size == 64 << 20
    assert image.size < 1 << 20


def qemu_img(*arguments):
    subprocess.run(["qemu-img", *arguments], check=True, capture_output=True)


async def test_a_compressed_qcow2_is_stored_plain(store, tmp_path):
    raw, packed = tmp_path / "raw", tmp_path / "packed.qcow2"
    raw.write_bytes(b"hello, guest" * 100_000 + bytes(208 + 512 * 1000))
    qemu_img("convert", "-c", "-f", "raw", "-O", "qcow2", raw, packed)
    image = await store.import_disk(packed, ["demo"])
    assert image.format == "qcow2"
    assert image.path.stat().st_size > packed.stat().st_size
    assert b"hello, guest" in image.path.read_bytes()
    qemu_img("compare", raw, image.path)


async def test_importing_a_missing_file_is_an_error(store, tmp_path):
    with pytest.raises(ImageError, match=r"cannot import .*nothing: No such file"):
        await store.import_disk(tmp_path / "nothing", ["demo"])
    with pytest.raises(ImageError, match="cannot import"):
        await store.import_disk(tmp_path, ["demo"])


async def test_removal_keeps_disks_with_other_names_or_machines(store, tmp_path, shapes, source):
    image = await store.import_disk(source, ["one", "two"])
    machine = tmp_path / "link"
    machine.hardlink_to(image.path)
    await store.remove("one")
    assert store.find("one") is None
    assert image.path.exists()
    await store.remove("two")
    assert not image.path.exists()
    assert machine.read_bytes() == shapes.disk()
    with pytest.raises(ImageError, match=r"no image docker\.io/library/two:latest"):
        await store.remove("two")


@pytest.mark.parametrize("content", [b"{", b'{"reference": "\xff"}'])
async def test_a_damaged_record_counts_as_missing(store, tmp_path, shapes, content, source):
    await store.import_disk(source, ["demo"])
    next(store._references.glob("*.json")).write_bytes(content)
    assert store.find("demo") is None
    assert store.images() == []
    other = tmp_path / "other"
    other.write_bytes(shapes.disk(fill=b"e"))
    await store.import_disk(other, ["other"])
    assert len(list(store._disks.iterdir())) == 2, "nobody knows what the record meant"


async def test_another_process_sees_imports(store, tmp_path, limits, source):
    other = ImageStore(tmp_path / "images", destinations=ANYWHERE, limits=limits)
    image = await store.import_disk(source, ["demo"])
    assert other.find("demo") == image


def test_suggested_commands_name_the_data_directory():
    option = ["--data-dir", "/srv/a b\\1"]
    assert with_option("corral image ls, corral image rm", ()) == "corral image ls, corral image rm"
    assert with_option("so: corral image build-demo --as x", option) == (
        "so: corral image build-demo --data-dir '/srv/a b\\1' --as x"
    )


async def test_a_missing_image_suggests_the_command_for_this_store(tmp_path):
    store = ImageStore(tmp_path / "images", option=["--data-dir", "/srv/lab"])
    with pytest.raises(ImageError) as refused:
        await store.ensure("lab/none:1", policy="Never")
    assert "corral image import --data-dir /srv/lab FILE lab/none:1" in refused.value.hint
