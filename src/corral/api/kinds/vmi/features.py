"""Clock, timers, hypervisor features and launch security of a VMI."""

from corral.api.object import Struct


class ClockUtc(Struct, kw_only=True):
    """The guest's clock starts at UTC.

    offset_seconds: seconds that are added to UTC.
    """

    offset_seconds: int | None = None


class RtcTimer(Struct, kw_only=True):
    """The real-time clock.

    tick_policy: what happens to missed ticks: delay or catchup.
    present: false leaves the timer out.
    track: guest or wall.
    """

    tick_policy: str = ""
    present: bool | None = None
    track: str = ""


class TickTimer(Struct, kw_only=True):
    """A timer with periodic interrupts.

    tick_policy: what happens to missed ticks: delay, catchup, merge or discard.
    present: false leaves the timer out.
    """

    tick_policy: str = ""
    present: bool | None = None


class ClockTimer(Struct, kw_only=True):
    """A paravirtual clock.

    present: false leaves the timer out.
    """

    present: bool | None = None


class Timer(Struct, kw_only=True):
    """The timers of the guest.

    hpet: high precision event timer.
    kvm: KVM's clock, for Linux guests.
    pit: programmable interval timer.
    rtc: real-time clock.
    hyperv: Hyper-V's clock, for Windows guests.
    """

    hpet: TickTimer | None = None
    kvm: ClockTimer | None = None
    pit: TickTimer | None = None
    rtc: RtcTimer | None = None
    hyperv: ClockTimer | None = None


class Clock(Struct, kw_only=True):
    """The guest's clock and timers.

    utc: the clock starts at UTC.
    timezone: the clock starts at this zone's time, e.g. Europe/Berlin.
    timer: the timers of the guest.
    """

    utc: ClockUtc | None = None
    timezone: str | None = None
    timer: Timer | None = None


class FeatureState(Struct, kw_only=True):
    """A switch.

    enabled: true by default.
    """

    enabled: bool | None = None


class Apic(FeatureState, kw_only=True):
    """The interrupt controller.

    end_of_interrupt: whether the end of an interrupt is signalled to the guest.
    """

    end_of_interrupt: bool = False


class Spinlocks(FeatureState, kw_only=True):
    """Hyper-V's hint for spinlocks.

    spinlocks: number of retries, 4096 at least.
    """

    spinlocks: int | None = None


class SynicTimer(FeatureState, kw_only=True):
    """Timers of the synthetic interrupt controller.

    direct: whether they fire without the interrupt controller.
    """

    direct: FeatureState | None = None


class TlbFlush(FeatureState, kw_only=True):
    """Paravirtual TLB flushes.

    direct: whether nested guests may use them.
    extended: whether a part of the TLB can be flushed.
    """

    direct: FeatureState | None = None
    extended: FeatureState | None = None


class VendorId(FeatureState, kw_only=True):
    """The hypervisor's name that the guest reads.

    vendorid: the name, twelve characters at most.
    """

    vendorid: str = ""


class Hyperv(Struct, kw_only=True):
    """Hyper-V enlightenments that a Windows guest sees."""

    relaxed: FeatureState | None = None
    vapic: FeatureState | None = None
    spinlocks: Spinlocks | None = None
    vpindex: FeatureState | None = None
    runtime: FeatureState | None = None
    synic: FeatureState | None = None
    synictimer: SynicTimer | None = None
    reset: FeatureState | None = None
    vendorid: VendorId | None = None
    frequencies: FeatureState | None = None
    reenlightenment: FeatureState | None = None
    tlbflush: TlbFlush | None = None
    ipi: FeatureState | None = None
    evmcs: FeatureState | None = None


class Kvm(Struct, kw_only=True):
    """Visibility of KVM.

    hidden: whether the guest cannot see that it runs on KVM.
    """

    hidden: bool = False


class Features(Struct, kw_only=True):
    """Features of the machine.

    acpi: ACPI, on by default.
    apic: the interrupt controller.
    hyperv: Hyper-V enlightenments that a Windows guest sees.
    hyperv_passthrough: all Hyper-V enlightenments that the host supports.
    smm: system management mode.
    kvm: visibility of KVM.
    pvspinlock: paravirtual spinlocks.
    """

    acpi: FeatureState | None = None
    apic: Apic | None = None
    hyperv: Hyperv | None = None
    hyperv_passthrough: FeatureState | None = None
    smm: FeatureState | None = None
    kvm: Kvm | None = None
    pvspinlock: FeatureState | None = None


class SevPolicy(Struct, kw_only=True):
    """Conditions of AMD SEV.

    encrypted_state: whether SEV-ES is needed.
    """

    encrypted_state: bool | None = None


class SevAttestation(Struct, kw_only=True):
    """The guest proves what was started before it runs."""


class Sev(Struct, kw_only=True):
    """AMD's encrypted memory.

    policy: conditions of the guest's owner.
    attestation: whether the guest proves what was started.
    session: session blob, base64.
    dh_cert: the owner's Diffie-Hellman key, base64.
    """

    policy: SevPolicy | None = None
    attestation: SevAttestation | None = None
    session: str = ""
    dh_cert: str = ""


class SevSnp(Struct, kw_only=True):
    """AMD SEV-SNP, as its specification names the values.

    policy: what the guest's owner allows the host, as a number in hexadecimal.
    vcek: the key of the processor that signs its reports, in base64.
    author_key: whether the author's key is part of what is measured.
    kernel_hashes: whether kernel, initrd and command line are part of what is measured.
    cbitpos: which bit of an address says that memory is encrypted.
    id_block: what the guest is expected to measure, in base64.
    id_auth: the signature of the ID block, in base64.
    reduced_phys_bits: how many bits of addresses encryption takes.
    """

    policy: str = ""
    vcek: str = ""
    author_key: str = ""
    kernel_hashes: str = ""
    cbitpos: str = ""
    id_block: str = ""
    id_auth: str = ""
    reduced_phys_bits: str = ""


class Tdx(Struct, kw_only=True):
    """Intel's trust domains."""


class LaunchSecurity(Struct, kw_only=True):
    """A guest whose memory its host cannot read.

    sev: AMD's encrypted memory.
    snp: AMD SEV-SNP.
    tdx: Intel's trust domains.
    """

    sev: Sev | None = None
    snp: SevSnp | None = None
    tdx: Tdx | None = None
