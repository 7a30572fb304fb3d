from corral.node.images.demo import loader
from corral.node.images.demo.contents import Boot


def test_machines_get_the_kernel_that_has_drivers_for_their_devices():
    packages = dict.fromkeys((loader.PROGRAM, *loader.LIBRARIES), b"program")
    files = loader.files(packages, wide=b"wide", other=Boot(b"other", b"second"))
    assert files["kernel64"] == b"wide"
    assert (files["kernel32"], files["initrd32"]) == (b"other", b"second")
    assert b"LINUX /kernel64\n  APPEND console=ttyS0" in files["isolinux.cfg"]
    assert b"LINUX /kernel32\n  INITRD /initrd32\n" in files["isolinux.cfg"]
    assert b'["8086:2922"] = true' in files["choose.lua"]
    assert files["isolinux.bin"] == files["lua.c32"] == b"program"
