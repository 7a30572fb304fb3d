import subprocess

from corral.node.images.demo import cpio


def test_cpio_reads_the_archive_with_parent_directories():
    data = cpio.archive([
        cpio.file("etc/deep/name", b"text", 0o600),
        cpio.link("bin/sh", "busybox"),
        cpio.character_device("dev/console", 5, 1),
    ])  # fmt: skip
    listed = subprocess.run(
        ["cpio", "-tvn", "--quiet"], input=data, capture_output=True, check=True
    )
    rows = [line.split() for line in listed.stdout.decode().splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [
        ("drwxr-xr-x", "bin"),
        ("lrwxrwxrwx", "busybox"),
        ("drwxr-xr-x", "dev"),
        ("crw-------", "dev/console"),
        ("drwxr-xr-x", "etc"),
        ("drwxr-xr-x", "etc/deep"),
        ("-rw-------", "etc/deep/name"),
    ]
    assert all(row[2:4] == ["0", "0"] for row in rows)


def test_of_two_entries_with_one_path_the_later_wins():
    assert cpio.archive([cpio.link("a", "b"), cpio.file("a", b"x")]) == cpio.archive(
        [cpio.file("a", b"x")]
    )
