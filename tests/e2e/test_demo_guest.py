"""The demo guest does what its documentation says, seen from outside, in 64 MB."""

import asyncio
import base64
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pycdlib
import pytest
from bench.cluster import free_port
from tests.e2e.network.cable import LEASE, LINK, ip, may_make_links, plug, responding

from corral.node.network.dhcp import Lease, Route
from corral.node.network.namespaces import Namespace
from corral.node.volumes.seed import write as write_disk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PATIENCE = 300  # on a busy machine; a boot takes two on an idle one
MAC = "52:54:00:00:00:01"


@dataclass
class Guest:
    """A running QEMU; `said` is all that its serial console printed."""

    process: asyncio.subprocess.Process
    directory: Path
    forwarded: dict[int, int]
    said: str = ""
    boot_seconds: float = 0.0
    grew: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        """Hear what it prints, and how long it takes to print its first prompt."""
        started = time.monotonic()
        while chunk := await self.process.stdout.read(4096):
            async with self.grew:
                self.said += chunk.decode(errors="replace")
                if not self.boot_seconds and "login: " in self.said:
                    self.boot_seconds = time.monotonic() - started
                self.grew.notify_all()

    async def says(self, pattern: str, since: int = 0) -> re.Match[str]:
        """Waits until the console has printed what `pattern` matches, after `since` characters."""

        def found() -> re.Match[str] | None:
            return re.compile(pattern).search(self.said, since)

        try:
            async with asyncio.timeout(PATIENCE), self.grew:
                return await self.grew.wait_for(found)
        except TimeoutError:
            pytest.fail(f"no {pattern!r} on the console:\n{self.said}")

    async def type(self, line: str, answer: str) -> re.Match[str]:
        since = len(self.said)
        self.process.stdin.write(line.encode() + b"\n")
        return await self.says(answer, since)

    async def log_in(self, user: str, password: str) -> None:
        await self.says("login: ")
        await self.type(user, "Password: ")
        await self.type(password, r":~[$#] ")

    async def run(self, command: str) -> str:
        """The output of a shell command, typed on the console of a logged in user."""
        # What is typed before the shell reads may be echoed twice: only the output has the words.
        line = f"echo beg''in; {command}; echo e''nd"
        match = await self.type(line, r"(?s)begin\r\n(.*?)end\r\n\S*[$#] ")
        return match[1].replace("\r\n", "\n")

    def busy_share(self, seconds: float) -> float:
        """Of one processor, which it takes for so long."""
        before = self._used()
        time.sleep(seconds)
        return (self._used() - before) / seconds

    def _used(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2)  # see clock_getcpuclockid(3)

    def get(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.forwarded[80]}{path}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read().decode()

    async def served(self, path: str) -> str:
        """`get`, once the guest's network is up: the forwarder resets connections before."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await asyncio.to_thread(self.get, path)
                except OSError:
                    await asyncio.sleep(0.1)

    async def greets(self) -> str:
        """Return the banner of the SSH server, once it is there."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.forwarded[22])
                    greeting = await reader.readline()
                    writer.close()
                    await writer.wait_closed()
                except OSError:
                    greeting = b""
                if greeting:
                    return greeting.decode()
                await asyncio.sleep(0.1)

    async def monitor(self, command: str) -> None:
        reader, writer = await asyncio.open_unix_connection(self.directory / "qmp")
        async with asyncio.timeout(PATIENCE):
            await reader.readline()
            for name in ("qmp_capabilities", command):
                writer.write(json.dumps({"execute": name}).encode())
                await reader.readline()
        writer.close()
        await writer.wait_closed()

    async def agent(self) -> "Agent":
        await self.says("login: ")
        reader, writer = await asyncio.open_unix_connection(self.directory / "agent")
        agent = Agent(reader, writer)
        async with asyncio.timeout(PATIENCE):
            await agent.synchronize()
        return agent

    async def ends(self) -> float:
        """Return the time until it has ended, as a share of the time of its boot."""
        started = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            await self.process.wait()
        return (time.monotonic() - started) / self.boot_seconds


@dataclass
class Agent:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def synchronize(self) -> None:
        """Asks until the agent answers: what is sent before it opens its port is lost."""
        while True:
            self._send("guest-sync-delimited", {"id": 4711})
            try:
                async with asyncio.timeout(1):
                    await self.reader.readuntil(b"\xff")
                    break
            except TimeoutError:
                continue
        assert json.loads(await self.reader.readline()) == {"return": 4711}

    async def ask(self, command: str, **arguments: object) -> object:
        self._send(command, arguments)
        async with asyncio.timeout(PATIENCE):
            while (line := await self.reader.readline()).startswith(b"\xff"):
                continue  # the answer to a question that was asked twice
            return json.loads(line)["return"]

    def _send(self, command: str, arguments: dict[str, object]) -> None:
        self.writer.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")


def seed_disk(path: Path, label: str = "cidata", **files: str) -> Path:
    """cloud-init's disk; `user_data=` becomes the file user-data."""
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    for number, (name, text) in enumerate(files.items()):
        real, content = name.replace("_", "-"), text.encode()
        image.add_fp(
            io.BytesIO(content),
            len(content),
            f"/F{number}.;1",
            rr_name=real,
            joliet_path=f"/{real}",
        )
    image.write(str(path))
    image.close()
    return path


def fat_disk(directory: Path, **files: str) -> list[str]:
    """The same as a vfat disk, which QEMU makes of a directory; on virtio."""
    directory.mkdir()
    for name, text in files.items():
        (directory / name.replace("_", "-")).write_text(text)
    return ["-drive", f"driver=vvfat,dir={directory},label=CIDATA,floppy=on,if=virtio"]


def virtio(disk: Path) -> list[str]:
    return ["-drive", f"file={disk},format=raw,if=virtio"]


def kept(disk: Path) -> list[str]:
    """A disk that keeps what the guest writes."""
    return ["-drive", f"file={disk},format=raw,if=virtio,snapshot=off"]


def copied(disk: Path, target: Path) -> Path:
    shutil.copy(disk, target)
    target.chmod(0o600)
    return target


def sata(disk: Path, port: int, kind: str = "hd") -> list[str]:
    name = f"sata{port}"
    drive = f"file={disk},format=raw,if=none,id={name}"
    return ["-drive", drive, "-device", f"ide-{kind},drive={name},bus=ide.{port}"]


SSH = ("-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")


async def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, command, env=os.environ | environment,
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


@asynccontextmanager
async def machine(
    directory: Path, *disks: list[str], more: tuple[str, ...] = (), pod: Namespace | None = None
) -> AsyncIterator[Guest]:
    """A running guest, on a user network, or on the device `tap` of a namespace."""
    forwarded = {} if pod else {22: free_port(), 80: free_port()}
    network = "user,id=net,hostname=vm-1" + "".join(
        f",hostfwd=tcp:127.0.0.1:{host}-:{inside}" for inside, host in forwarded.items()
    )
    enter: list[str] = []
    if pod:
        network = "tap,id=net,ifname=tap,script=no,downscript=no"
        enter = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{pod.descriptor}"]
    command = [
        *enter, "qemu-system-x86_64", "-M", "q35" if "ide-" in str(disks) else "q35,sata=off",
        "-accel", "tcg,tb-size=32", "-cpu", "qemu64,+rdrand", "-m", "62500K",
        "-nodefaults", "-no-user-config", "-display", "none", "-snapshot", "-serial", "stdio",
        "-netdev", network, "-device", f"virtio-net-pci,netdev=net,mac={MAC}",
        "-qmp", f"unix:{directory}/qmp,server=on,wait=off",
        "-device", "virtio-serial-pci",
        "-chardev", f"socket,id=agent,path={directory}/agent,server=on,wait=off",
        "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
        *(word for disk in disks for word in disk), *more,
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    guest = Guest(process, directory, forwarded)
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        group.create_task(guest.listen())
        try:
            yield guest
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_it_boots_with_memory_to_spare_and_its_power_button_works_at_once(
    demo_disk, tmp_path
):
    async with machine(tmp_path, virtio(demo_disk)) as guest:
        await guest.says("demo login: ")
        await guest.log_in("cirros", "gocubsgo")
        assert "root login" not in guest.said
        assert "root login on 'ttyS0'" in await guest.run("logread")
        assert (await guest.served("/")).strip() == "vm-1"
        available = await guest.run("grep MemAvailable /proc/meminfo")
        assert int(available.split()[1]) > 14_000, available
        assert "10.0.2.15" in await guest.run("ip -4 address show eth0")
        await guest.type("exit", "vm-1 login: ")
        assert "not found" not in guest.said
        await guest.monitor("system_powerdown")
        assert await guest.ends() < 1


async def test_an_idle_guest_uses_no_cpu_and_powers_off_at_once(demo_disk, tmp_path):
    """A kernel that ticks takes five hundredths of a processor and more."""
    async with machine(tmp_path, virtio(demo_disk)) as guest:
        await guest.log_in("demo", "demo")
        assert "cloud" in await guest.run("uname -r")
        agent = await guest.agent()  # which looks all the time whether somebody is there, else
        await guest.greets()
        best = 1.0
        async with asyncio.timeout(PATIENCE):
            while best > 0.01:
                before = ticks(await guest.run("cat /proc/interrupts"))
                best = min(best, await asyncio.to_thread(guest.busy_share, 5))
        assert ticks(await guest.run("cat /proc/interrupts")) - before < 5 * 100
        agent.writer.close()
        guest.process.stdin.write(b"sudo poweroff\n")
        assert await guest.ends() < 1


def ticks(interrupts: str) -> int:
    return int(re.search(r"LOC: +(\d+)", interrupts)[1])


@pytest.mark.periodic
async def test_its_clock_keeps_the_time_of_a_busy_host(demo_disk, tmp_path):
    """A clock whose speed was found by counting, on such a host, was 3 to 20 times too fast."""
    busy = [
        await asyncio.create_subprocess_exec("sh", "-c", "while :; do :; done")
        for _ in range(2 * os.cpu_count())
    ]
    try:
        async with asyncio.TaskGroup() as machines:
            for processors in (1, 2):
                directory = tmp_path / str(processors)
                directory.mkdir()
                machines.create_task(look_at_clock(directory, demo_disk, processors))
    finally:
        for each in busy:
            each.kill()
            await each.wait()


async def look_at_clock(directory: Path, disk: Path, processors: int) -> None:
    more = ("-smp", str(processors))
    async with machine(directory, virtio(disk), more=more) as guest:
        await guest.log_in("demo", "demo")
        assert (await guest.run("nproc")).strip() == str(processors)
        began = time.monotonic()
        first = float((await guest.run("cat /proc/uptime")).split()[0])
        asked = time.monotonic()
        await guest.run("sleep 8")
        asked_again = time.monotonic()
        last = float((await guest.run("cat /proc/uptime")).split()[0])
        ended = time.monotonic()
        assert asked_again - asked - 0.1 <= last - first <= ended - began + 0.1
        assert asked_again - asked >= 7.9


async def test_data_survives_a_restart_and_cloud_init_runs_once(demo_disk, tmp_path):
    """On a disk that was made larger, which is used as a whole."""
    disk = copied(demo_disk, tmp_path / "disk")
    size = disk.stat().st_size + 64 * 2**20
    os.truncate(disk, size)
    user_data = "#cloud-config\nhostname: web\nruncmd: ['echo ran >> /srv/ran']\n"
    seed = seed_disk(tmp_path / "seed.iso", user_data=user_data, meta_data="instance-id: i-1\n")
    other = seed_disk(tmp_path / "other.iso", user_data=user_data, meta_data="instance-id: i-2\n")
    async with machine(tmp_path, kept(disk), virtio(seed)) as guest:
        await guest.says("web login: ")
        await guest.log_in("demo", "demo")
        await guest.run("echo a > /kept; echo b > /root/kept; echo c >> /etc/profile; rm /bin/awk")
        await guest.run("until [ $(stat -f -c %b /disk) -gt 16000 ]; do usleep 100000; done")
        key = await guest.run("dropbearkey -y -f /etc/dropbear/dropbear_ed25519_host_key")
        await guest.type("poweroff", "")
        await guest.ends()
    async with machine(tmp_path, kept(disk), virtio(seed)) as guest:
        await guest.says("web login: ")
        await guest.log_in("demo", "demo")
        assert await guest.run("cat /kept /root/kept; tail -n 1 /etc/profile") == "a\nb\nc\n"
        assert "No such file" in await guest.run("ls /bin/awk")
        assert await guest.run("cat /srv/ran") == "ran\n"
        assert key == await guest.run("dropbearkey -y -f /etc/dropbear/dropbear_ed25519_host_key")
    async with machine(tmp_path, kept(disk), virtio(other)) as guest:
        await guest.log_in("demo", "demo")
        assert await guest.run("cat /srv/ran") == "ran\nran\n"


async def test_it_boots_with_a_second_partition_that_is_full_or_damaged(demo_disk, tmp_path):
    disk = copied(demo_disk, tmp_path / "disk")
    async with machine(tmp_path, kept(disk)) as guest:
        await guest.log_in("demo", "demo")
        await guest.run("cat /dev/zero > /full; sync; df /disk")
        guest.process.kill()
        await guest.ends()
    async with machine(tmp_path, kept(disk)) as guest:
        await guest.log_in("demo", "demo")
        assert "/dev/vda2 on /disk" in await guest.run("mount")
        assert await guest.run("rm /full; echo a > /kept; cat /kept") == "a\n"
        await guest.type("poweroff", "")  # what lies in the journal only goes with it, below
        await guest.ends()
    with disk.open("r+b") as file:
        file.seek(446 + 16 + 8)
        start = int.from_bytes(file.read(4), "little") * 512
        file.seek(start + 1024 + 0xE0)
        file.write(b"\x0a")  # in its superblock: another file is its journal
    async with machine(tmp_path, kept(disk)) as guest:
        await guest.says("second partition is damaged: repairing it")
        await guest.log_in("demo", "demo")
        assert await guest.run("cat /kept") == "a\n"
        guest.process.kill()
        await guest.ends()
    with disk.open("r+b") as file:
        file.seek(start)
        file.write(os.urandom(disk.stat().st_size - start))
    async with machine(tmp_path, kept(disk)) as guest:
        await guest.says("what is written is gone when the machine ends")
        await guest.log_in("demo", "demo")
        assert await guest.run("echo a > /kept; cat /kept") == "a\n"


async def test_it_boots_from_a_read_only_disk_with_the_script_of_a_sata_drive(demo_disk, tmp_path):
    disk = ["-drive", f"file={demo_disk},format=raw,if=virtio,readonly=on,snapshot=off"]
    seed = seed_disk(
        tmp_path / "seed.iso",
        user_data="#!/bin/sh\necho 'printed from cloud-init userdata'\n",
        meta_data="instance-id: i-1\nlocal-hostname: vmi-1\n",
    )
    async with machine(tmp_path, disk, sata(seed, 0, "cd")) as guest:
        await guest.says("what is written is gone when the machine ends")
        await guest.says(r"(?s)printed from cloud-init userdata.*vmi-1 login: ")
        await guest.log_in("demo", "demo")
        assert await guest.run("echo a > /etc/kept; cat /etc/kept") == "a\n"


async def test_cloud_config_is_applied_and_other_disks_are_mounted(demo_disk, tmp_path):
    user_data = """#cloud-config
        hostname: web-1
        password: "se:cret"
        chpasswd: { expire: False }
        ssh_authorized_keys: [ssh-ed25519 AAAA one@host]
        users:
          - default
          - name: alice
            ssh_authorized_keys:
              - ssh-ed25519 BBBB two@host
        write_files:
          - path: /srv/plain
            permissions: '0640'
            content: |
              first\\tline
                second 'line'
          - {path: /srv/coded, encoding: b64, content: ENCODED}
        runcmd:
          - echo text $((1 + 1)) >> /srv/ran
          - [sh, -c, 'echo "list $0" >> /srv/ran', "a 'b' c"]
          - |
            for word in block lines; do
              echo $word >> /srv/ran
            done
        """.replace("ENCODED", base64.b64encode(b"\0binary\xff").decode())
    user_data = "\n".join(line.removeprefix(" " * 8) for line in user_data.splitlines()) + "\n"
    seed = seed_disk(
        tmp_path / "seed.iso",
        user_data=user_data,
        meta_data='{"instance-id": "i-1", "local-hostname": "other"}',
    )
    for name in ("ext4", "vfat"):
        (tmp_path / name).write_bytes(b"")
        os.truncate(tmp_path / name, 40 * 2**20)
    disks = [virtio(tmp_path / name) for name in ("ext4", "vfat")]
    async with machine(tmp_path, virtio(demo_disk), virtio(seed), *disks) as guest:
        await guest.says("web-1 login: ")
        await guest.log_in("demo", "se:cret")
        assert await guest.run("cat /srv/plain") == "first\\tline\n  second 'line'\n"
        assert (await guest.run("stat -c %a /srv/plain")).strip() == "640"
        assert (await guest.run("xxd -p /srv/coded")).strip() == "0062696e617279ff"
        assert await guest.run("cat /srv/ran") == "text 2\nlist a 'b' c\nblock\nlines\n"
        assert "AAAA one@host" in await guest.run("cat /root/.ssh/authorized_keys")
        assert "BBBB two@host" in await guest.run("cat /home/alice/.ssh/authorized_keys")
        assert (await guest.served("/")).strip() == "web-1"
        assert "hostname=web-1\n" in await guest.served("/cgi-bin/info")
        await formats_and_mounts_disks(guest)
        await has_a_wget_with_a_timeout(guest)


async def formats_and_mounts_disks(guest: Guest) -> None:
    await guest.run("mkfs.ext4 -q /dev/vdc; mkfs.vfat /dev/vdd; mkdir -p /mnt/c /mnt/d")
    await guest.run("mount /dev/vdc /mnt/c; mount -t vfat /dev/vdd /mnt/d")
    for place, kind in (("c", "ext4"), ("d", "vfat")):
        text = await guest.run(f"echo {kind} > /mnt/{place}/x; cat /mnt/{place}/x")
        assert text == f"{kind}\n"
        assert f"on /mnt/{place} type {kind}" in await guest.run("mount")


async def has_a_wget_with_a_timeout(guest: Guest) -> None:
    assert await guest.run("wget -T 60 -qO- http://localhost/") == "web-1\n"
    assert await guest.run("wget -qT60 -O - http://localhost/") == "web-1\n"
    await guest.run("(sleep 600 | nc -l -p 81 >/dev/null &)")
    assert "timed out" in await guest.run("wget -T 1 http://localhost:81/")


async def test_a_vfat_seed_sets_users_passwords_a_key_and_a_static_address(demo_disk, tmp_path):
    key = tmp_path / "key"
    await run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    packed = base64.b64encode(gzip.compress(b"unpacked")).decode()
    seed = fat_disk(
        tmp_path / "seed",
        meta_data="instance-id: i-1\n",
        user_data=f"""#cloud-config
fqdn: web.example.org
users:
  - name: alice
    plain_text_passwd: rabbit
    ssh_authorized_keys: ['{key.with_suffix(".pub").read_text().strip()}']
chpasswd:
  list: |
    root:toor
    demo:other
write_files:
  - {{path: /srv/packed, encoding: gz+b64, content: {packed}, owner: 'alice:alice'}}
""",
        network_config=f"""version: 1
config:
  - type: physical
    name: first
    mac_address: '{MAC}'
    subnets:
      - {{type: static, address: 10.0.2.15, netmask: 255.255.255.0, gateway: 10.0.2.2}}
""",
    )
    async with machine(tmp_path, virtio(demo_disk), seed) as guest:
        await guest.says("web login: ")
        await guest.log_in("alice", "rabbit")
        await guest.type("exit", "web login: ")
        await guest.log_in("demo", "other")
        assert (await guest.run("hostname -f")).strip() == "web.example.org"
        assert (await guest.run("cat /srv/packed; echo; stat -c %U /srv/packed")).split() == [
            "unpacked", "alice",
        ]  # fmt: skip
        await guest.greets()
        assert "10.0.2.15/24" in await guest.run("ip -4 address show eth0")
        said = await run(
            "ssh", *SSH, "-i", key, "-o", "BatchMode=yes", "-p", str(guest.forwarded[22]),
            "alice@127.0.0.1", "id -un",
        )  # fmt: skip
        assert said.stdout == "alice\n", said.stderr


async def test_it_boots_from_sata_disks_with_a_static_address(demo_disk, tmp_path):
    seed = seed_disk(
        tmp_path / "seed.iso",
        meta_data="local-hostname: on-sata\n",
        user_data="#cloud-config\n{}\n",
        network_config="version: 2\nethernets:\n  first:\n    match:\n"
        f'      macaddress: "{MAC}"\n    addresses: [10.0.2.77/24]\n    gateway4: 10.0.2.2\n',
    )
    async with machine(tmp_path, sata(demo_disk, 0), sata(seed, 1)) as guest:
        await guest.says("on-sata login: ")
        await guest.log_in("demo", "demo")
        # The prompt comes first; the route is the last that it gets.
        await guest.run("until ip route | grep default; do usleep 100000; done")
        assert "10.0.2.77/24" in await guest.run("ip -4 address show eth0")
        assert "via 10.0.2.2" in await guest.run("ip route")


async def test_a_config_drive_sets_network_host_name_and_keys(demo_disk, tmp_path):
    drive = tmp_path / "drive.iso"
    meta = {"local_hostname": "web-2", "public_keys": {"0": "ssh-ed25519 AAAA one", "1": "k two"}}
    content = {
        "openstack/latest/meta_data.json": json.dumps(meta).encode(),
        "openstack/latest/user_data": b"#cloud-config\npassword: secret\n",
        "openstack/latest/network_data.json": b"{}",
    }
    write_disk(drive, "config-2", content)
    async with machine(tmp_path, virtio(demo_disk), virtio(drive)) as guest:
        await guest.says("web-2 login: ")
        await guest.log_in("demo", "secret")
        assert await guest.run("cat /root/.ssh/authorized_keys") == "ssh-ed25519 AAAA one\nk two\n"


async def test_its_agent_and_ssh_server_work_and_it_reboots(demo_disk, tmp_path):
    async with machine(tmp_path, virtio(demo_disk)) as guest:
        agent = await guest.agent()
        await the_agent_answers(guest, agent)
        await the_agent_sets_keys_and_passwords(guest, agent)
        await files_are_copied_both_ways(guest, tmp_path)
        await guest.type("reboot", "demo login: ")
        async with asyncio.timeout(PATIENCE):
            await agent.synchronize()
        agent._send("guest-shutdown", {})
        assert await guest.ends() < 1
        agent.writer.close()
        await agent.writer.wait_closed()


async def the_agent_answers(guest: Guest, agent: Agent) -> None:
    assert await agent.ask("guest-ping") == {}
    commands = {row["name"] for row in (await agent.ask("guest-info"))["supported_commands"]}
    assert {"guest-exec", "guest-shutdown", "guest-get-osinfo"} <= commands
    await guest.served("/")
    assert await agent.ask("guest-get-host-name") == {"host-name": "vm-1"}
    assert (await agent.ask("guest-get-osinfo"))["id"] == "corral-demo"
    cards = await agent.ask("guest-network-get-interfaces")
    assert [card["hardware-address"] for card in cards if card["name"] == "eth0"] == [MAC]


async def the_agent_sets_keys_and_passwords(guest: Guest, agent: Agent) -> None:
    keys = ["ssh-ed25519 AAAA one", "ssh-rsa BBBB two"]
    add = "guest-ssh-add-authorized-keys"
    assert await agent.ask(add, username="demo", keys=keys[:1], reset=True) == {}
    assert await agent.ask(add, username="demo", keys=keys[1:], reset=True) == {}
    password = base64.b64encode(b"$a:b'c").decode()
    ask = {"username": "demo", "password": password, "crypted": False}
    assert await agent.ask("guest-set-user-password", **ask) == {}
    await guest.log_in("demo", "$a:b'c")
    # QEMU's agent ends the last line with nothing.
    assert await guest.run("cat /root/.ssh/authorized_keys") == "ssh-rsa BBBB two"


async def files_are_copied_both_ways(guest: Guest, tmp_path: Path) -> None:
    """By ``scp`` with a password."""
    answers = tmp_path / "askpass"
    answers.write_text("#!/bin/sh\necho gocubsgo\n")
    answers.chmod(0o700)
    asking = {"SSH_ASKPASS": str(answers), "SSH_ASKPASS_REQUIRE": "force"}
    sent = tmp_path / "sent"
    sent.write_bytes(os.urandom(100_000))
    assert (await guest.greets()).startswith("SSH-2.0-dropbear")
    port = ("-P", str(guest.forwarded[22]))
    for way in ([], ["-O"]):  # by SFTP, and as before OpenSSH 9
        copy = tmp_path / "copy"
        for pair in ((sent, "cirros@127.0.0.1:/tmp/it"), ("cirros@127.0.0.1:/tmp/it", copy)):
            done = await run("scp", *SSH, *way, *port, *pair, **asking)
            assert done.returncode == 0, done.stderr
        assert copy.read_bytes() == sent.read_bytes()
        copy.unlink()


needs_rights = pytest.mark.skipif(
    not may_make_links(), reason="makes a tap device; the sessions of tests/e2e do that as a user"
)


@asynccontextmanager
async def networked(directory: Path, disk: Path, lease: Lease) -> AsyncIterator[Guest]:
    """A guest that somebody is logged in to, in a pod as `masquerade` and `bridge` make them."""
    with Namespace.create() as pod:
        pod.run(ip, "link set lo up", "tuntap add tap mode tap")
        plug(pod, "tap", f"{lease.server}/32")
        pod.run(ip, f"route add {lease.address.ip} dev bridge")
        async with (
            responding(pod, replace(LINK, guest=MAC, lease=lease)),
            machine(directory, virtio(disk), pod=pod) as guest,
        ):
            await guest.log_in("demo", "demo")
            yield guest


@needs_rights
async def test_it_uses_all_dhcp_options(demo_disk, tmp_path):
    async with networked(tmp_path, demo_disk, LEASE) as guest:
        await guest.run("until ip -6 address show scope global | grep inet6; do sleep 1; done")
        addresses = await guest.run("ip address show eth0")
        assert "mtu 1450" in addresses
        assert "inet 10.0.2.2/24 brd 10.0.2.255 scope global" in addresses
        assert "inet6 fd10:0:2::2/128 scope global" in addresses
        assert "default via 10.0.2.1" in await guest.run("ip route")
        assert "default via fe80::" in await guest.run("ip -6 route")
        assert await guest.run("cat /etc/resolv.conf") == (
            "search default.svc.cluster.local svc.cluster.local\nnameserver 10.0.2.1\n"
        )
        assert await guest.run("hostname") == "web-1\n"
        await guest.run("while pidof dhcpcd; do usleep 100000; done")


@needs_rights
async def test_it_reaches_a_gateway_outside_of_its_prefix(demo_disk, tmp_path):
    router = IPv4Address("10.244.0.1")
    lease = replace(
        LEASE,
        address=IPv4Interface("10.244.0.7/32"),
        server=router,
        gateway=router,
        routes=(Route(IPv4Network("192.168.4.0/22"), router),),
    )
    async with networked(tmp_path, demo_disk, lease) as guest:
        await guest.run("until ip route | grep default; do usleep 100000; done")
        assert (await guest.run("ip route")).splitlines() == [
            "default via 10.244.0.1 dev eth0 ",
            "10.244.0.1 dev eth0 scope link ",
            "192.168.4.0/22 via 10.244.0.1 dev eth0 ",
        ]
        assert ", 0% packet loss" in await guest.run("ping -c 1 -W 60 10.244.0.1")
