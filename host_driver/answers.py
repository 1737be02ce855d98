"""What a device reports about itself, checked before it is used."""

from typing import Any

from stagecoach.host_driver import registers
from stagecoach.host_driver.device import Device
from stagecoach.host_driver.device_attr import DeviceAttr
from stagecoach.host_driver.enums import QPState, WROpcode
from stagecoach.host_driver.errors import DeviceError
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.hw.interface.sizes import SIZES

_INTERFACE = registers.VERSION.unpack(registers.VERSION.constant or 0)
KNOWN = _INTERFACE["major"], _INTERFACE["minor"]
"""Version of the interface that the driver was made for."""

FIRST_WITH_DIGEST = (3, 1)
"""Version from which on all devices have register INTERFACE."""


def read_attr(device: Device) -> DeviceAttr:
    """The sizes of a device. Raises `DeviceError` for sizes that no device has, or another one."""
    version, digest = _read_interface(device)
    queues = device.read(registers.QUEUES)
    limits = device.read(registers.LIMITS)
    for name, fields in (("QUEUES", queues), ("LIMITS", limits)):
        for field in fields.keys() & SIZES.keys():
            if fields[field] not in SIZES[field]:
                raise DeviceError(
                    f"the device has {name}.{field} {fields[field]}; allowed: {SIZES[field]}"
                )
    least, most = (end.bit_length() - 1 for end in (SIZES["stags"].least, SIZES["stags"].most))
    if not least <= limits["stags_log2"] <= most:
        raise DeviceError(
            f"the device has LIMITS.stags_log2 {limits['stags_log2']}; allowed: {least} to {most}"
        )
    return DeviceAttr(
        max_qp=queues["qps"],
        max_cq=queues["cqs"],
        max_mr=1 << limits["stags_log2"],
        max_qp_rd_atom=limits["read_queue_depth"],
        max_sge=SCATTER_GATHER_ELEMENTS,
        version=version,
        interface_digest=digest,
    )


def _read_interface(device: Device) -> tuple[tuple[int, int], int | None]:
    """Version of the device's interface, and its digest if it has one.

    Raises `DeviceError` for another device, another major version, a minor one that lacks what the
    driver uses, or the driver's own version with another digest.
    """
    magic = device.read(registers.ID)["magic"]
    if magic != registers.ID.constant:
        raise DeviceError(
            f"the device has ID 0x{magic:08X}; allowed: 0x{registers.ID.constant:08X}"
        )
    fields = device.read(registers.VERSION)
    version = fields["major"], fields["minor"]
    has_digest = version >= FIRST_WITH_DIGEST
    digest = device.read(registers.INTERFACE)["digest"] if has_digest else None
    is_known = version == KNOWN and digest == registers.INTERFACE.constant
    if not is_known and not (version[0] == KNOWN[0] and version[1] > KNOWN[1]):
        found = "no digest" if digest is None else f"digest 0x{digest:08X}"
        raise DeviceError(
            f"the device has interface {version[0]}.{version[1]} with {found}; allowed: "
            f"{KNOWN[0]}.{KNOWN[1]} with digest 0x{registers.INTERFACE.constant:08X}, "
            f"or a later {KNOWN[0]}.x"
        )
    return version, digest


def read_capabilities(device: Device) -> dict[str, Any]:
    """What else a device can do, by attribute of `DeviceAttr`; its settings change it."""
    has = device.read(registers.CAPABILITIES)
    atomics: tuple[WROpcode, ...] = ()
    if has["atomics"]:
        atomics += (WROpcode.ATOMIC_FETCH_AND_ADD, WROpcode.ATOMIC_CMP_AND_SWP)
    if has["swap"]:
        atomics += (WROpcode.ATOMIC_SWAP,)
    return {
        "atomics": atomics,
        "imm_data": bool(has["immediate_data"]),
        "counters": bool(has["counters"]),
        "max_srq": device.attr.max_qp if has["srq"] else 0,
    }


def read_state(device: Device, number: int) -> tuple[QPState, Cause]:
    """State and first error of a QP. Raises `DeviceError` for an error that there is not."""
    with device.lock:
        device.write(registers.QP_NUMBER, qp=number)
        found = device.read(registers.QP_STATE)
    if found["cause"] not in CODES:
        raise DeviceError(f"QP {number} has QP_STATE.cause {found['cause']}; allowed: a Cause")
    return QPState(found["state"]), Cause(found["cause"])
