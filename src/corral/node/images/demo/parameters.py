"""What the guest's kernels are told on their command lines, and why."""

from __future__ import annotations

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
OTHER = (
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
WIDE = (
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
