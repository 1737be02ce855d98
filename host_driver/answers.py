"""What a device answers of itself, checked before it is believed."""

from typing import Any

from stagecoach.host_driver import registers
from stagecoach.host_driver.device import Device
from stagecoach.host_driver.device_attr import DeviceAttr
from stagecoach.host_driver.enums import QPState, WROpcode
from stagecoach.host_driver.errors import DeviceError
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS
from stagecoach.hw.interface.sizes import SIZES

MAGIC = 0x50525769
VERSION_MAJOR = 3


def read_attr(device: Device) -> DeviceAttr:
    """The sizes of a device. Raises `DeviceError` for sizes that no device has, or another one."""
    magic = device.read(registers.ID)["magic"]
    version = device.read(registers.VERSION)
    if magic != MAGIC or version["major"] != VERSION_MAJOR:
        raise DeviceError(
            f"ID 0x{magic:08X}, version {version['major']}.{version['minor']}; "
            f"allowed: 0x{MAGIC:08X}, version {VERSION_MAJOR}.x"
        )
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
        version=(version["major"], version["minor"]),
    )


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
    }


def read_state(device: Device, number: int) -> tuple[QPState, Cause]:
    """State and first error of a QP. Raises `DeviceError` for an error that there is not."""
    with device.lock:
        device.write(registers.QP_NUMBER, qp=number)
        found = device.read(registers.QP_STATE)
    if found["cause"] not in CODES:
        raise DeviceError(f"QP {number} has QP_STATE.cause {found['cause']}; allowed: a Cause")
    return QPState(found["state"]), Cause(found["cause"])
