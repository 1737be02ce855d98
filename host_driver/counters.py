"""The counters that a device keeps of every QP, and of why QPs stopped."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from stagecoach.host_driver import registers
from stagecoach.host_driver.answers import read_state
from stagecoach.host_driver.device import Device
from stagecoach.host_driver.enums import QPState
from stagecoach.host_driver.errors import DeviceError
from stagecoach.host_driver.registers import CounterWord
from stagecoach.hw.interface.causes import Cause

_LOW_BITS, _HIGH_BITS = (
    half.fields["value"].width for half in (registers.COUNTER_LOW, registers.COUNTER_HIGH)
)
COUNTER_BITS = _LOW_BITS + _HIGH_BITS
"""Counters wrap at two to this power."""


@dataclass(frozen=True)
class QPCounters:
    """What a QP number has counted since the reset of the device, modulo 2^36.

    Octets are bytes of ULPDUs, messages are DDP Messages. `outstanding_reads` are those of now.
    """

    fpdus_sent: int = 0
    octets_sent: int = 0
    messages_sent: int = 0
    outstanding_reads: int = 0
    fpdus_received: int = 0
    octets_received: int = 0
    messages_received: int = 0

    def __add__(self, other: "QPCounters") -> "QPCounters":
        return QPCounters(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )


@dataclass(frozen=True)
class QPStatus:
    """State, first error and counters of a QP."""

    state: QPState
    cause: Cause
    counters: QPCounters


def _read(device: Device, word: CounterWord, index: int) -> int:
    device.write(registers.COUNTER_SELECT, counter=word, index=index)
    low = device.read(registers.COUNTER_LOW)["value"]
    return low | device.read(registers.COUNTER_HIGH)["value"] << _LOW_BITS


def _require_counters(device: Device) -> None:
    if not device.attr.counters:
        raise DeviceError("the device was built without counters; allowed: RnicConfig.counters")


def query_state(device: Device, number: int) -> tuple[QPState, Cause]:
    """State and first error of the QP with a number, in use or not.

    Raises `ValueError` if the device has no such QP.
    """
    if not 0 <= number < device.attr.max_qp:
        raise ValueError(f"QP {number}; allowed: 0 to {device.attr.max_qp - 1}")
    return read_state(device, number)


def query_qp(device: Device, number: int) -> QPStatus:
    """State and counters of the QP with a number, in use or not.

    Raises `DeviceError` if the device has no counters, `ValueError` if it has no such QP.
    """
    _require_counters(device)
    with device.lock:
        state, cause = query_state(device, number)
        values = {
            word.name.lower(): _read(device, word, number)
            for word in CounterWord
            if word is not CounterWord.STOPPED
        }
    if state is not QPState.RTS or values["outstanding_reads"] >> COUNTER_BITS - 1:
        # Nobody answers any more, or an answer came that nobody had asked for.
        values["outstanding_reads"] = 0
    return QPStatus(state, cause, QPCounters(**values))


def query_stops(device: Device, causes: Iterable[Cause] = Cause) -> dict[Cause, int]:
    """How many QPs stopped for each of some causes, those that there were, modulo 2^32.

    NONE: FPDUs that were dropped. One is dropped if its QP does not run, e.g. after the one for
    which the QP stopped. A QP that the driver stops is not counted. Raises `DeviceError` if the
    device has no counters.
    """
    _require_counters(device)
    found = {}
    with device.lock:
        for cause in causes:
            device.write(registers.COUNTER_SELECT, counter=CounterWord.STOPPED, index=cause)
            found[cause] = device.read(registers.COUNTER_LOW)["value"]
    return {cause: count for cause, count in found.items() if count}


def query_lost(device: Device) -> int:
    """Events that are in no counter, since the reset of the device; 255 if there were more."""
    return device.read(registers.COUNTER_LOST)["value"]


def query_dropped_events(device: Device) -> int:
    """Events of stopped QPs that the event queue had no place for, since reset, mod 2^16.

    Every device has it, also one without counters. `Context.events_lost` counts those of a device.
    """
    return device.read(registers.EVENTS_LOST)["events"]
