"""Several hosts on one machine: network and UTS namespaces around a router.

Everything lives in namespaces that belong to processes of the test, so nothing of it is in the
machine's own network, and the kernel removes all of it when those processes end, however they end.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

_CLONE_NEWUTS, _CLONE_NEWNET = 0x04000000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
# Ends with its standard input, which ends with the test.
_HOLD = 'echo "$0" > /proc/sys/kernel/hostname && echo ready && read -r _'


def why_not() -> str:
    """Why hosts cannot be made here, "" if they can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    missing = [tool for tool in ("unshare", "nsenter", "ip", "tc", "nft") if not shutil.which(tool)]
    if missing:
        return f"not installed: {', '.join(missing)} (of util-linux, iproute2, nftables)"
    probe = subprocess.run(
        ["unshare", "--net", "--uts", "sh", "-c", "ip link add probe type veth && nft list tables"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no network namespaces here: {probe.stderr.strip()}" if probe.returncode else ""


@dataclass(frozen=True)
class Host:
    """One host. Can be sent to another process."""

    name: str
    address: str
    pid: int  # of the process whose namespaces it is

    def enter(self) -> None:
        """Moves this thread, and those it starts from here on, to the host."""
        for kind, flag in (("net", _CLONE_NEWNET), ("uts", _CLONE_NEWUTS)):
            _set_namespace(f"/proc/{self.pid}/ns/{kind}", flag)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is on the host while the block runs; its sockets stay there."""
        back = f"/proc/{os.getpid()}/task/{ctypes.CDLL(None).gettid()}/ns"
        with ExitStack() as stack:
            for kind, flag in (("net", _CLONE_NEWNET), ("uts", _CLONE_NEWUTS)):
                home = os.open(f"{back}/{kind}", os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, home)
                stack.callback(_libc.setns, home, flag)
            self.enter()
            yield

    def run(self, *command: str) -> None:
        """Runs a command on the host; CalledProcessError if it fails."""
        where = ["nsenter", "-t", str(self.pid), "--net", "--uts"]
        subprocess.run([*where, *command], check=True)


class Network:
    """Hosts that reach each other through a router, which can be told not to pass packets on."""

    def __init__(self, hosts: Sequence[Host], router: Host) -> None:
        self.hosts = tuple(hosts)
        self.router = router

    def limit(self, rate: str, *, burst: str = "256kb", latency: str = "25ms") -> None:
        """Every host sends at most this fast, as in "1gbit"; more queues for at most `latency`."""
        for host in self.hosts:
            limits = ["rate", rate, "burst", burst, "latency", latency]
            host.run("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *limits)

    def unlimit(self) -> None:
        for host in self.hosts:
            host.run("tc", "qdisc", "del", "dev", "eth0", "root")

    def rule(self, source: Host, target: Host, action: str) -> None:
        """From here on the router does this with packets from `source` to `target`.

        Examples: "drop", "tcp flags syn drop", "reject with tcp reset".
        """
        match = f"ip saddr {source.address} ip daddr {target.address}"
        self.router.run("nft", f"add rule inet partition forward {match} {action}")

    def isolate(self, host: Host) -> None:
        """From here on nothing reaches the host, and nothing comes from it."""
        self.router.run("nft", f"add element inet partition isolated {{ {host.address} }}")

    def rejoin(self, host: Host) -> None:
        """Takes that back."""
        self.router.run("nft", f"delete element inet partition isolated {{ {host.address} }}")

    def mend(self) -> None:
        """Takes back all rules, and lets isolated hosts rejoin."""
        self.router.run("nft", "flush set inet partition isolated")
        self.router.run("nft", "flush chain inet partition forward")


@contextmanager
def network(size: int) -> Iterator[Network]:
    """`size` hosts while the block runs."""
    with ExitStack() as stack:
        router = Host("router", "", stack.enter_context(_namespaces("router")))
        _set_up_router(router)
        hosts = []
        for index in range(size):
            name = f"host-{index}"
            host = Host(name, f"10.177.{index}.2", stack.enter_context(_namespaces(name)))
            _connect(router, host, index)
            hosts.append(host)
        yield Network(hosts, router)


@contextmanager
def _namespaces(name: str) -> Iterator[int]:
    holder = subprocess.Popen(
        ["unshare", "--net", "--uts", "/bin/sh", "-c", _HOLD, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None and holder.stdout is not None
    with holder:
        if holder.stdout.readline() != b"ready\n":
            raise RuntimeError(f"no namespaces for {name}")
        try:
            yield holder.pid
        finally:
            holder.stdin.close()


def _set_up_router(router: Host) -> None:
    router.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    router.run("nft", "add table inet partition")
    router.run("nft", "add chain inet partition forward { type filter hook forward priority 0; }")
    router.run("nft", "add set inet partition isolated { type ipv4_addr; }")
    router.run("nft", "add chain inet partition cut { type filter hook forward priority 1; }")
    for side in ("saddr", "daddr"):
        router.run("nft", f"add rule inet partition cut ip {side} @isolated drop")


def _connect(router: Host, host: Host, index: int) -> None:
    port, subnet = f"port{index}", f"10.177.{index}"
    router.run(
        *("ip", "link", "add", port, "type", "veth"),
        *("peer", "name", "eth0", "netns", str(host.pid)),
    )
    router.run("ip", "addr", "add", f"{subnet}.1/24", "dev", port)
    router.run("ip", "link", "set", port, "up")
    host.run("ip", "link", "set", "lo", "up")
    host.run("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
    host.run("ip", "link", "set", "eth0", "up")
    host.run("ip", "route", "add", "default", "via", f"{subnet}.1")


def _set_namespace(path: str, flag: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, flag) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)
