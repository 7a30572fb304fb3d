"""Command lines of the guest's kernels, with the reasons for each parameter."""

from __future__ import annotations

_COMMON = (
    "console=ttyS0 panic=5",
    "loglevel=3",  # the kernel misses its types for BPF, and says so
    "no_timer_check",  # its check of the timer panics now and then when the host is busy
    "cryptomgr.notests",  # the self-tests of all ciphers
    "lsm=",  # AppArmor and friends, which no one configures here
    # The TSC is calibrated against another clock, which goes wrong on a busy host that stops the
    # guest between the two reads. The ACPI timer has a fixed frequency.
    "tsc=unstable",
)
OTHER = (
    *_COMMON,
    "noisapnp",  # probing for ISA cards takes a third of a second
    "nolapic_timer",  # calibration takes a tenth of a second; the PIT suffices
    "highres=off",  # the kernel ticks periodically: less work without high resolution
    "initcall_blacklist=tracer_init_tracefs",  # megabytes of files for tracing
    # The firmware reserves a range above 4 GiB; a 32-bit kernel truncates that to its whole address
    # space, and would have no addresses for a device that is plugged in later.
    "pci=no_e820",
)
_CGROUPS = (
    "memory", "cpu", "cpuset", "blkio", "pids", "hugetlb", "devices", "freezer", "perf_event",
    "net_cls", "net_prio", "rdma", "misc",
)  # fmt: skip
# Initcalls that use memory and serve kernel developers, or large machines.
_OMITTED_INITCALLS = (
    "tracer_init_tracefs", "event_trace_init", "init_kprobes", "perf_event_sysfs_init",
    "slab_sysfs_init", "slab_debugfs_init", "bpf_init", "btf_vmlinux_init",
    "hugetlb_init", "init_hugetlbfs_fs", "io_uring_init", "init_mqueue_fs", "zswap_init",
    "dma_atomic_pool_init", "nvme_core_init", "nvme_init", "ksm_init", "xen_pcpu_init",
    "integrity_iintcache_init", "ima_init", "evm_init", "add_pcspkr", "aer_service_init",
    # These take time: self-tests of ciphers, unused keys, and debug information.
    "crypto_kdf108_init", "blake2s_mod_init", "load_system_certificate_list", "init_encrypted",
    "sched_init_debug", "dmi_sysfs_init", "debugfs_kprobe_init",
)  # fmt: skip
WIDE = (
    *_COMMON,
    "nokaslr mitigations=off audit=0 nowatchdog",
    # Memory: 64 MB are few for this kernel.
    "percpu_alloc=page log_buf_len=16K numa=off kfence.sample_interval=0",
    "slub_min_objects=1 slub_max_order=0 transparent_hugepage=never init_on_alloc=0",
    "dhash_entries=1024 ihash_entries=1024 mhash_entries=512 mphash_entries=512",
    "thash_entries=512 uhash_entries=256",
    "memhp_default_state=online",  # memory that is plugged in
    f"cgroup_disable={','.join(_CGROUPS)}",
    f"initcall_blacklist={','.join(_OMITTED_INITCALLS)}",
)
