"""Registers and commands of a device, before anything is made of them."""

import time

from stagecoach.host_driver import registers
from stagecoach.host_driver.device_attr import DeviceAttr
from stagecoach.host_driver.device_lock import DeviceLock
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.registers import CommandOpcode, Register
from stagecoach.host_driver.ring import Ring
from stagecoach.host_driver.transport.base import Transport

_OF_COMMANDS = {registers.COMMAND.address} | {
    *range(registers.QP_NUMBER.address, registers.FPDUS_SENT.address)
}
"""Addresses of COMMAND and of its arguments."""


class Device:
    """What a transport leads to: registers, the command mailbox, rings that it is given.

    All calls may be made from several threads; what takes more than one access takes `lock`. In a
    process that was forked from that which has opened the device they raise `DeviceClosed`.

    Parameters
    ----------
    transport: the way to the device.
    command_seconds: time limit of a command.
    open_seconds: time limit of all accesses until it is open.

    Attributes
    ----------
    attr: sizes of the device, once they were read.
    """

    attr: DeviceAttr

    def __init__(self, transport: Transport, command_seconds: float, open_seconds: float):
        if not hasattr(transport, "read_register"):
            raise TypeError(f"transport is a {type(transport).__name__}; allowed: a Transport")
        self.transport = transport
        self.lock = DeviceLock()
        self._unfinished: int | None = None  # opcode of a command that did not end
        self._command_seconds = command_seconds
        self._open_seconds = open_seconds
        self._open_until: float | None = time.monotonic() + open_seconds  # `None`: it is open

    def _end_of_opening(self) -> None:
        """Accesses have no common time limit any more."""
        self._open_until = None

    def read(self, register: Register) -> dict[str, int]:
        """The fields of a register."""
        self._check_access(register)
        return register.unpack(self.transport.read_register(register.address))

    def write(self, register: Register, **fields: int) -> None:
        """Writes a register; fields that are not named are zero.

        Raises `DeviceError` for COMMAND and its arguments after a command that did not end.
        """
        self._check_access(register)
        if self._unfinished is not None and register.address in _OF_COMMANDS:
            raise DeviceError(
                f"command {self._unfinished} has not ended, the device takes no other one; "
                "allowed: close the context and reset the device"
            )
        self.transport.write_register(register.address, register.pack(**fields))

    def _check_access(self, register: Register) -> None:
        self.lock.check()
        if self._open_until is not None and time.monotonic() >= self._open_until:
            raise DeviceError(
                f"the device is not open after {self._open_seconds:g} s, at {_name_of(register)}; "
                "allowed: more open_seconds if it is only slow"
            )

    def write_wide(self, low: Register, high: Register, value: int) -> None:
        """Writes a value of up to 64 bits to two registers."""
        self.write(low, value=value & 0xFFFFFFFF)
        self.write(high, value=value >> 32)

    def command(self, opcode: int) -> None:
        """Runs a command to its end; its arguments are in the staging registers.

        Raises `DeviceError` if the device finds an argument invalid, or does not finish. In
        the second case the device is unusable: it would not answer the write of another COMMAND,
        and use changed arguments.
        """
        self.write(registers.COMMAND, opcode=opcode)
        status = self._wait_for_command()
        if status is None:
            self._unfinished = opcode
            raise DeviceError(
                f"command {opcode}, {CommandOpcode(opcode).name}, is not finished: "
                f"COMMAND_STATUS.busy is 1 for {self._command_seconds:g} s"
            )
        if status["invalid"]:
            raise DeviceError(f"the device refused command {opcode}: invalid argument")

    def _require_idle(self) -> None:
        """Raises `DeviceError` if a command that another program began does not end in time."""
        if self._wait_for_command() is None:
            raise DeviceError(
                "a command of another program is not finished: COMMAND_STATUS.busy is 1 for "
                f"{self._command_seconds:g} s; allowed: a device that is reset or idle"
            )

    def _wait_for_command(self) -> dict[str, int] | None:
        """COMMAND_STATUS when no command is under way, `None` if one does not end in time."""
        end = time.monotonic() + self._command_seconds
        while True:
            late = time.monotonic() >= end
            status = self.read(registers.COMMAND_STATUS)
            if not status["busy"]:
                return status
            if late:
                return None

    def _enable_ring(self, number: int, ring: Ring) -> None:
        """Gives a completion ring, or the event ring, to the device."""
        with self.lock:
            self.write(registers.CQ_NUMBER, cq=number)
            self.write_wide(registers.CQ_BASE_LOW, registers.CQ_BASE_HIGH, ring.address)
            self.write(registers.CQ_SIZE, log2=ring.log2)
            self.command(CommandOpcode.CQ_ENABLE)

    def _disable_ring(self, number: int) -> None:
        """Takes a completion ring, or the event ring, from the device."""
        with self.lock:
            self.write(registers.CQ_NUMBER, cq=number)
            self.command(CommandOpcode.CQ_DISABLE)

    @property
    def cycles(self) -> int:
        """Core clock cycles of the device since its reset."""
        with self.lock:
            low = self.read(registers.CYCLES_LOW)["value"]
            return low | self.read(registers.CYCLES_HIGH)["value"] << 32

    @property
    def fpdus_sent(self) -> int:
        """FPDUs sent since reset, mod 2^32."""
        return self.read(registers.FPDUS_SENT)["value"]

    @property
    def fpdus_received(self) -> int:
        """FPDUs received with good CRC since reset, mod 2^32."""
        return self.read(registers.FPDUS_RECEIVED)["value"]

    def _skip_lost(self, number: int, ring: Ring, entry: int, ask: bool) -> bool:
        """Whether an entry of CQ `number` that is not there is lost, see `Ring.skip_lost`.

        Without `ask` the device is not asked, and none is known to be.
        """
        if not ask:
            return False
        self.write(registers.CQ_NUMBER, cq=number)
        answered = self.read(registers.CQ_ANSWERED)["entries"]
        if ring.entries < answered - entry & 0xFFFF < 0x8000:
            raise DeviceError(
                f"CQ {number} has CQ_ANSWERED {answered}; allowed: at most {ring.entries} entries "
                f"after {entry}"
            )
        return ring.skip_lost(entry, answered)

    def wait(self, seconds: float) -> bool:
        """Waits for an interrupt of the device, at most some time; whether there was one."""
        return self.transport.wait_interrupt(max(0.0, seconds))

    def clear_interrupts(self) -> None:
        """Clears what raised the interrupt, so that the next cause raises it again."""
        self.write(registers.INTERRUPT_STATUS, completion=1, event=1)


def _name_of(register: Register) -> str:
    """The name of a register in the description."""
    return next(name for name, one in vars(registers).items() if one is register)
