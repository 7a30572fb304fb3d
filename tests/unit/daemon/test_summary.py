from corral.config import Settings
from corral.daemon.summary import summary
from corral.node.qemu import hypervisor
from corral.node.qemu.hypervisor import Qemu


async def test_it_has_the_commands_that_work_as_they_are_printed(tmp_path, monkeypatch):
    monkeypatch.delenv("CORRAL_DATA_DIR", raising=False)
    settings = Settings(directory=tmp_path / "my lab")

    lines = await summary(settings, "https://127.0.0.1:6443", ())

    assert lines["dashboard"] == f"corral dashboard --data-dir '{tmp_path}/my lab'"
    monkeypatch.setenv("CORRAL_DATA_DIR", str(tmp_path / "my lab"))
    assert (await summary(settings, "", ()))["dashboard"] == "corral dashboard"


async def test_a_manager_is_ready_while_the_accelerator_is_still_probed(tmp_path, monkeypatch):
    monkeypatch.setattr(hypervisor, "START_SECONDS", 0)

    lines = await summary(Settings(directory=tmp_path), "", [Qemu(tmp_path)])

    assert lines["machines"] == "QEMU; its accelerator is still being probed, see: corral status"
