"""The guest: Linux in QEMU, which runs commands that come over a serial port.

QEMU emulates the processor; neither KVM nor root is needed. The guest has two Ethernet interfaces,
and siw on both: 10.0.2.15 on QEMU's user network, by which it reaches TCP sockets of this machine
at 10.0.2.2; and 192.0.2.2 on the wire of devices with networks of their own. That one goes to a hub
of QEMU, whose other ports are Unix sockets with the frames: each takes a device or another guest.
Offloads are off: every frame on the wire is whole and has its checksums.
"""

import contextlib
import json
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self

from tools.interop.errors import InteropError
from tools.interop.image import Image
from tools.interop.job import Job, JobError

QEMU = "qemu-system-x86_64"
HOST = "10.0.2.2"
"""This machine, as the guest sees it on the user network."""
USER_ADDRESS = "10.0.2.15"
"""The guest's on the user network."""
ADDRESSES = ("192.0.2.2", "192.0.2.3")
"""On the wire: the guest's, and that of one that has joined it."""
PORTS = 4
"""Of the hub, for devices and another guest."""
_LINE = re.compile(r"(?P<number>\d+)(\|(?P<line>.*)|=(?P<status>\d+))")
"""What init.sh says of a command: a line that it printed, or its exit status."""
_BOOT_SECONDS = 300.0
_MIB = 512
_OFFLOADS = (
    "csum",
    "gso",
    "guest_csum",
    "guest_ecn",
    "guest_tso4",
    "guest_tso6",
    "guest_ufo",
    "host_ecn",
    "host_tso4",
    "host_tso6",
    "host_ufo",
    "mrg_rxbuf",
)
# Without no_timer_check the kernel gives up if this machine is so busy that a timer is late.
_KERNEL_LINE = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check"


class Guest:
    """A running guest; `boot` waits until it is ready.

    Parameters
    ----------
    image: to boot. folder: for its sockets, console and captures; its path is short.
    ports: TCP ports of the guest that the machine is to reach; `forwarded` says where.
    joins: a port of the hub of another guest, in place of a hub.

    Attributes
    ----------
    wires: ports of the hub.
    """

    def __init__(
        self, image: Image, folder: Path, ports: tuple[int, ...] = (), joins: Path | None = None
    ):
        self.wires = [] if joins else [folder / f"wire{number}" for number in range(PORTS)]
        self.console = folder / "console.log"
        self._folder = folder
        self._numbers = iter(range(1, 1 << 30))
        self._jobs: dict[int, Job] = {}
        self._lock = Lock()
        self._boot = Job("the guest")
        self.forwarded = dict(zip(ports, _free_ports(len(ports)), strict=True))
        with _listener(folder / "control") as control, _listener(folder / "monitor") as monitor:
            self._process = subprocess.Popen(
                _command(image, folder, self.forwarded, self.wires, joins),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=(folder / "qemu.log").open("wb"),
            )
            try:
                self._control = self._connected(control)
                self._monitor = self._connected(monitor).makefile("rw")
            except BaseException:
                self._process.kill()
                raise
        self._monitor.readline()
        self.monitor("qmp_capabilities")
        Thread(target=self._follow, name="guest", daemon=True).start()

    @classmethod
    def boot(
        cls, image: Image, folder: Path, ports: tuple[int, ...] = (), joins: Path | None = None
    ) -> Self:
        """A guest that is ready. Raises `InteropError`."""
        guest = cls(image, folder, ports, joins)
        try:
            guest.await_ready()
        except BaseException:
            guest.close()
            raise
        return guest

    def _connected(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(0.1)
        while True:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None:
                    why = (self._folder / "qemu.log").read_text().strip().splitlines()
                    raise InteropError(f"{QEMU} ended: {(why or ['no message'])[-1]}") from None

    def await_ready(self) -> None:
        """Waits until the guest says that it has booted. Raises `InteropError`."""
        try:
            self._boot.wait_for("READY", _BOOT_SECONDS)
        except JobError as error:
            lines = self.console.read_text(errors="replace").strip().splitlines()
            raise InteropError(f"{error} (console: {' / '.join(lines[-3:])})") from error

    def reset(self) -> None:
        """Resets the guest as by a button, and waits until it has booted again."""
        self._boot = Job("the guest")
        with self._lock:
            jobs, self._jobs = self._jobs, {}
        self.monitor("system_reset")
        for job in jobs.values():
            job.end(1)
        self.await_ready()

    def monitor(self, command: str, **arguments: Any) -> None:
        """Has QEMU do something (QMP). Raises `InteropError`."""
        with contextlib.suppress(ConnectionError):
            self._monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            self._monitor.flush()
            for line in self._monitor:
                answer = json.loads(line)
                if "error" in answer:
                    raise InteropError(f"QEMU: {command}: {answer['error']['desc']}")
                if "return" in answer:
                    return
        raise InteropError(f"QEMU: {command}: it has ended")

    @contextlib.contextmanager
    def captured(self, network: str, path: Path) -> Iterator[None]:
        """Writes the frames of one of its interfaces, user or wire, to a file, as pcap."""
        self.monitor(
            "object-add", **{"qom-type": "filter-dump"}, id="dump", netdev=network, file=str(path)
        )
        try:
            yield
        finally:
            self.monitor("object-del", id="dump")

    def start(self, command: str) -> Job:
        """Starts a command line of its shell."""
        number = next(self._numbers)
        job = Job(f"guest: {command}")
        with self._lock:
            self._jobs[number] = job
        self._control.sendall(f"{number} {command}\n".encode())
        return job

    def run(self, command: str, seconds: float | None = None) -> list[str]:
        """What a command line prints. Raises `JobError`."""
        job = self.start(command)
        return job.finish() if seconds is None else job.finish(seconds)

    def _follow(self) -> None:
        """Hands lines to the jobs that print them."""
        # QEMU that is killed with something unread resets the connection.
        with (
            contextlib.suppress(ConnectionResetError),
            self._control.makefile("r", errors="backslashreplace", newline="\n") as lines,
        ):
            for line in lines:
                self._take(line.rstrip("\r\n"))
        self._boot.end(1)
        with self._lock:
            for job in self._jobs.values():
                job.end(1)

    def _take(self, line: str) -> None:
        match = _LINE.fullmatch(line)
        if match is None:
            self._boot.feed(line)
            return
        with self._lock:
            job = self._jobs.get(int(match["number"]))
        if job is None:
            return  # from before a reset
        if match["status"] is None:
            job.feed(match["line"])
        else:
            job.end(int(match["status"]))

    def close(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()
        self._control.close()


def _listener(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    made.listen(1)
    return made


def _free_ports(count: int) -> list[int]:
    """Different TCP ports that nothing listens at."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _command(
    image: Image,
    folder: Path,
    forwarded: dict[int, int],
    wires: Sequence[Path],
    joins: Path | None,
) -> list[str]:
    """QEMU's command line."""
    forwards = "".join(
        f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for there, here in forwarded.items()
    )
    offloads = "".join(f",{name}=off" for name in _OFFLOADS)
    number = 0 if joins is None else 1
    command = [QEMU, "-nodefaults", "-no-user-config", "-display", "none"]
    command += ["-machine", "pc,accel=tcg", "-cpu", "max,la57=off", "-m", str(_MIB)]
    command += ["-kernel", str(image.kernel), "-initrd", str(image.initramfs)]
    # What is not the kernel's is in the environment of init.sh.
    command += ["-append", f"{_KERNEL_LINE} WIRE_ADDRESS={ADDRESSES[number]}"]
    command += ["-qmp", f"unix:{folder / 'monitor'}"]
    command += ["-serial", f"file:{folder / 'console.log'}"]
    command += ["-serial", f"unix:{folder / 'control'}"]
    command += ["-netdev", f"user,id=user{forwards}"]
    command += _hub(wires) if joins is None else ["-netdev", _stream("wire", joins, listens=False)]
    for card, name in enumerate(("user", "wire")):
        mac = f"mac=52:54:00:00:{number:02}:{card:02}"
        command += ["-device", f"virtio-net-pci,netdev={name},{mac},romfile={offloads}"]
    return command


def _hub(wires: Sequence[Path]) -> list[str]:
    """Options of QEMU for a wire to a hub with ports."""
    options = ["-netdev", "hubport,id=wire,hubid=0"]
    for number, path in enumerate(wires):
        options += ["-netdev", _stream(f"socket{number}", path, listens=True)]
        options += ["-netdev", f"hubport,id=port{number},hubid=0,netdev=socket{number}"]
    return options


def _stream(name: str, path: Path, *, listens: bool) -> str:
    server = "on" if listens else "off"
    return f"stream,id={name},server={server},addr.type=unix,addr.path={path}"
