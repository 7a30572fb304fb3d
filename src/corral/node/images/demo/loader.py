"""How ISOLINUX boots the guest: by a script that looks at the machine's devices, then a kernel.

The 64-bit kernel rests while the guest has nothing to do, but has drivers for virtio only. Machines
with other devices get the 32-bit one, which has them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.node.images.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corral.node.images.demo.contents import Boot

PROGRAM = "usr/lib/ISOLINUX/isolinux.bin"
LIBRARIES = tuple(
    f"usr/lib/syslinux/modules/bios/{name}.c32"
    for name in ("ldlinux", "lua", "liblua", "libcom32", "pci", "syslinux")
)

# Devices that only the 32-bit kernel drives.
_DEVICES = {
    "8086:2922": "SATA (AHCI)",
    "8086:100e": "e1000",
    "8086:10d3": "e1000e",
    "10ec:8139": "rtl8139",
    "8086:25ab": "the watchdog i6300esb",
}
_CHOICE = """\
local pci, syslinux = require "pci", require "syslinux"
local others = {{ {others} }}
local label = "wide"
for _, device in pairs(pci.getinfo()) do
  if others[string.format("%04x:%04x", device.vendor, device.product)] then label = "other" end
end
syslinux.run_command(label)
"""
_SETTINGS = """\
DEFAULT choose
PROMPT 0
NOESCAPE 1
LABEL choose
  COM32 lua.c32
  APPEND choose.lua
LABEL wide
  LINUX /kernel64
  APPEND {wide}
LABEL other
  LINUX /kernel32
  INITRD /initrd32
  APPEND {other}
"""

_COMMON = (
    "console=ttyS0 panic=5",
    "loglevel=3",  # the kernel misses its types for BPF, and says so
    "no_timer_check",  # its check of the timer panics now and then when the host is busy
    "cryptomgr.notests",  # the self-tests of all ciphers
    "lsm=",  # AppArmor and friends, which no one configures here
    # The processor's counter of cycles is the host's: how fast it runs is found out by comparing it
    # with another clock, and on a busy host the guest is stopped between the looks at the two. The
    # clock of ACPI has a fixed frequency.
    "tsc=unstable",
)
_OTHER = (
    *_COMMON,
    "noisapnp",  # a third of a second of looking for ISA cards
    "nolapic_timer",  # a tenth of a second of calibration; PIT ticks as well
    "highres=off",  # the kernel ticks all the time: without high resolution, for less
    "initcall_blacklist=tracer_init_tracefs",  # megabytes of files for tracing
    # The firmware names a range beyond 4 GiB reserved; this kernel of 32 bits takes that for
    # all of its addresses, and would have no room for a device that is plugged in later.
    "pci=no_e820",
)
_CGROUPS = (
    "memory", "cpu", "cpuset", "blkio", "pids", "hugetlb", "devices", "freezer", "perf_event",
    "net_cls", "net_prio", "rdma", "misc",
)  # fmt: skip
# What takes memory as it starts, and serves those who develop kernels, or many disks and machines.
_UNWANTED = (
    "tracer_init_tracefs", "event_trace_init", "init_kprobes", "perf_event_sysfs_init",
    "slab_sysfs_init", "slab_debugfs_init", "bpf_init", "btf_vmlinux_init",
    "hugetlb_init", "init_hugetlbfs_fs", "io_uring_init", "init_mqueue_fs", "zswap_init",
    "dma_atomic_pool_init", "nvme_core_init", "nvme_init", "ksm_init", "xen_pcpu_init",
    "integrity_iintcache_init", "ima_init", "evm_init", "add_pcspkr", "aer_service_init",
    # These take time: self-tests of ciphers, keys that nobody has, and what describes the kernel.
    "crypto_kdf108_init", "blake2s_mod_init", "load_system_certificate_list", "init_encrypted",
    "sched_init_debug", "dmi_sysfs_init", "debugfs_kprobe_init",
)  # fmt: skip
_WIDE = (
    *_COMMON,
    "nokaslr mitigations=off audit=0 nowatchdog",
    # Memory: 64 MB are few for this kernel.
    "percpu_alloc=page log_buf_len=16K numa=off kfence.sample_interval=0",
    "slub_min_objects=1 slub_max_order=0 transparent_hugepage=never init_on_alloc=0",
    "dhash_entries=1024 ihash_entries=1024 mhash_entries=512 mphash_entries=512",
    "thash_entries=512 uhash_entries=256",
    f"cgroup_disable={','.join(_CGROUPS)}",
    f"initcall_blacklist={','.join(_UNWANTED)}",
)


def files(packages: Mapping[str, bytes], *, wide: bytes, other: Boot) -> dict[str, bytes]:
    """The files of the disk's top directory; `packages` holds ISOLINUX's.

    `wide` is the 64-bit kernel with its initramfs in it.
    """
    others = ", ".join(f'["{device}"] = true' for device in _DEVICES)
    settings = _SETTINGS.format(wide=" ".join(_WIDE), other=" ".join(_OTHER))
    try:
        programs = {path.rpartition("/")[2]: packages[path] for path in (PROGRAM, *LIBRARIES)}
    except KeyError as error:
        raise DemoError(f"the packages of ISOLINUX lack {error}", "please report it") from error
    return programs | {
        "isolinux.cfg": settings.encode(),
        "choose.lua": _CHOICE.format(others=others).encode(),
        "kernel64": wide,
        "kernel32": other.kernel,
        "initrd32": other.initramfs,
    }
