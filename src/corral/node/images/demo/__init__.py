"""The demo guest: a small bootable disk, built from Debian packages without root.

It boots in 64 MB to a login prompt on the serial console, reads cloud-init's NoCloud disk, and
serves HTTP, SSH and QEMU's guest agent. `build_demo` builds the disk; `demo_recipe_digest` changes
when an earlier disk is out of date.
"""

from corral.node.images.demo.build import build_demo, demo_recipe_digest
from corral.node.images.demo.errors import DemoError

__all__ = ["DemoError", "build_demo", "demo_recipe_digest"]
