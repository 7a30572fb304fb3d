"""What has arrived of a layer stays, for the one who asks next and for nobody else meanwhile."""

import hashlib

import pytest

from corral.node.images.blob import Blob, BlobInUse


def test_a_partial_download_is_resumed(tmp_path):
    with Blob(tmp_path / "b", 10) as blob:
        blob.write(b"12345")
    with Blob(tmp_path / "b", 10) as blob:
        assert blob.received == 5
        blob.write(b"67890")
        assert blob.sha256() == hashlib.sha256(b"1234567890").hexdigest()


def test_a_partial_download_that_is_too_long_is_discarded(tmp_path):
    (tmp_path / "b").write_bytes(b"x" * 11)
    with Blob(tmp_path / "b", 10) as blob:
        assert blob.received == 0


def test_a_download_can_start_over(tmp_path):
    with Blob(tmp_path / "b", 10) as blob:
        blob.write(b"wrong")
        blob.restart()
        blob.write(b"right")
    assert (tmp_path / "b").read_bytes() == b"right"


def test_one_process_downloads_a_blob_at_a_time(tmp_path):
    with (
        Blob(tmp_path / "b", 10),
        pytest.raises(BlobInUse),
        Blob(tmp_path / "b", 10),
    ):
        pass
    with Blob(tmp_path / "b", 10):
        pass


def test_a_blob_removed_during_the_download_is_not_used(tmp_path):
    class Slow(type(tmp_path)):
        """Another pull ends between our opening of the file and our locking it."""

        def open(self, mode):
            file = super().open(mode)
            self.unlink()
            return file

    with pytest.raises(BlobInUse), Blob(Slow(tmp_path / "b"), 10):
        pass


def test_a_late_write_of_a_thread_is_dropped(tmp_path):
    with Blob(tmp_path / "b", 10) as blob:
        pass
    blob.write(b"late")
    assert (tmp_path / "b").read_bytes() == b""
