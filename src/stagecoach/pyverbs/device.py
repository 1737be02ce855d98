"""Devices: which there are, and opening one."""

import mmap
import os
from dataclasses import dataclass
from math import inf
from typing import Any, NoReturn

from stagecoach import host_driver as driver
from stagecoach.host_driver.locate import DEVICE_VARIABLE, SIMULATION, parse_device
from stagecoach.pyverbs import enums as e
from stagecoach.pyverbs.base import (
    PyverbsCM,
    PyverbsObject,
    absent,
    shown,
    translated,
    unsupported,
)
from stagecoach.pyverbs.pyverbs_error import PyverbsUserError

_ADDRESSES = "a peer is an IP address and a port, there are no LIDs, GIDs and partitions"
_MEMORY = "the device's own memory is DeviceMemory of stagecoach"
_EXTENDED = "the device has no extended capabilities"

# Limits of the driver: `QPCap.max_send_wr`, `SRQInitAttr.max_wr`, `CQ.cqe`, numbers of a PD in the
# STag table.
_MAX_QP_WR = 1 << 14
_MAX_SRQ_WR = 1 << 15
_MAX_CQE = 1 << 15
_MAX_PD = 1 << 16

AllocDmAttr = absent("AllocDmAttr", _MEMORY)
DM = absent("DM", _MEMORY)
QueryDeviceExInput = absent("QueryDeviceExInput", _EXTENDED)


class Device(PyverbsObject):
    """A device that can be opened by its name, which is bytes as in pyverbs."""

    def __init__(self, name: bytes, guid: int, node_type: int, transport_type: int, index: int):
        self._name, self._guid, self._index = name, guid, index
        self._node_type, self._transport_type = node_type, transport_type

    @property
    def name(self) -> bytes:
        """What `Context` takes, encoded."""
        return self._name

    @property
    def guid(self) -> int:
        """0: the device has none."""
        return self._guid

    @property
    def node_type(self) -> int:
        """IBV_NODE_RNIC."""
        return self._node_type

    @property
    def transport_type(self) -> int:
        """IBV_TRANSPORT_IWARP."""
        return self._transport_type

    @property
    def index(self) -> int:
        """Its place in the list."""
        return self._index

    def __repr__(self) -> str:
        return shown(self, "name", "guid", "node_type", "transport_type", "index")

    def __str__(self) -> str:
        return f"Device {self.name.decode()}, RNIC, iWARP"


def default_name() -> str:
    """The device of a program that names none: that of the commands, see docs/using.md."""
    return os.environ.get(DEVICE_VARIABLE) or SIMULATION


def get_device_list() -> list[Device]:
    """The one device of the environment: others are opened by their address, and not searched."""
    return [Device(default_name().encode(), 0, e.IBV_NODE_RNIC, e.IBV_TRANSPORT_IWARP, 0)]


@dataclass(frozen=True)
class DeviceAttr(PyverbsObject):
    """Sizes of a device. What an iWARP device has none of is 0, as libibverbs says it."""

    fw_version: str = ""
    node_guid: int = 0
    sys_image_guid: int = 0
    max_mr_size: int = 0
    page_size_cap: int = 0
    vendor_id: int = 0
    vendor_part_id: int = 0
    hw_ver: int = 0
    max_qp: int = 0
    max_qp_wr: int = 0
    device_cap_flags: int = 0
    max_sge: int = 0
    max_sge_rd: int = 0
    max_cq: int = 0
    max_cqe: int = 0
    max_mr: int = 0
    max_pd: int = 0
    max_qp_rd_atom: int = 0
    max_ee_rd_atom: int = 0
    max_res_rd_atom: int = 0
    max_qp_init_rd_atom: int = 0
    max_ee_init_rd_atom: int = 0
    atomic_caps: int = e.IBV_ATOMIC_NONE
    max_ee: int = 0
    max_rdd: int = 0
    max_mw: int = 0
    max_raw_ipv6_qps: int = 0
    max_raw_ethy_qp: int = 0
    max_mcast_grp: int = 0
    max_mcast_qp_attach: int = 0
    max_ah: int = 0
    max_fmr: int = 0
    max_map_per_fmr: int = 0
    max_srq: int = 0
    max_srq_wr: int = 0
    max_srq_sge: int = 0
    max_pkeys: int = 0
    local_ca_ack_delay: int = 0
    phys_port_cnt: int = 0


class AsyncEvent(PyverbsObject):
    """A QP that stopped, or what became of an SRQ. `verbs` has its number, and says why."""

    def __init__(self, event: driver.AsyncEvent):
        self.verbs = event

    def __repr__(self) -> str:
        return shown(self, "event_type", "verbs")

    @property
    def event_type(self) -> int:
        """IBV_EVENT_QP_FATAL, of QPs with an SRQ IBV_EVENT_QP_LAST_WQE_REACHED, too.

        Of SRQs IBV_EVENT_SRQ_LIMIT_REACHED and IBV_EVENT_SRQ_ERR.
        """
        return int(self.verbs.event_type)

    def ack(self) -> None:
        """Nothing waits for it."""


class Context(PyverbsCM):
    """An open device.

    Parameters
    ----------
    name: as of the option `--device` of the commands: `simulation`, the address of a simulated
        network card, or of a board at a serial port.
    cmid: the device of a `CMID` instead, which also closes it.
    verbs: an open `stagecoach.Context` instead, which its owner closes; pyverbs has no such.

    Raises `PyverbsUserError` without any of them, `PyverbsRDMAError` if there is no such device.
    """

    def __init__(self, **kwargs: Any):
        for name in kwargs.keys() - {"name", "cmid", "verbs"}:
            raise unsupported(f"Context({name}=...)", "the driver is a part of this process")
        self._opened = False
        if "verbs" in kwargs:
            self.verbs: driver.Context = kwargs["verbs"]
            self.name = type(self.verbs.transport).__name__
        elif "cmid" in kwargs:
            self.verbs, self.name = kwargs["cmid"].context.verbs, kwargs["cmid"].dev_name
        elif "name" in kwargs:
            self.name = kwargs["name"]
            with translated(f"device {self.name}"):
                self.verbs = driver.Context(parse_device(self.name).open())
            self._opened = True
        else:
            raise PyverbsUserError("Context without a device; allowed: name=..., or cmid=...")

    def __repr__(self) -> str:
        return f"<Context {self.name}: {self.verbs}>"

    @property
    def num_comp_vectors(self) -> int:
        """1: the device has one interrupt."""
        return 1

    def query_device(self) -> DeviceAttr:
        """Sizes of the device."""
        with translated("query_device"):
            attr = self.verbs.query_device()
        reads = attr.max_qp_rd_atom
        return DeviceAttr(
            fw_version=".".join(map(str, attr.version)),
            max_mr_size=(1 << 64) - 1,
            page_size_cap=mmap.PAGESIZE,
            max_qp=attr.max_qp,
            max_qp_wr=_MAX_QP_WR,
            max_sge=driver.QPCap().max_send_sge,
            max_sge_rd=1,
            max_cq=attr.max_cq,
            max_cqe=_MAX_CQE,
            max_mr=attr.max_mr,
            max_pd=_MAX_PD,
            max_qp_rd_atom=reads,
            max_res_rd_atom=reads * attr.max_qp,
            max_qp_init_rd_atom=reads,
            max_srq=attr.max_srq,
            max_srq_wr=_MAX_SRQ_WR if attr.max_srq else 0,
            max_srq_sge=driver.SRQInitAttr().max_sge if attr.max_srq else 0,
            atomic_caps=e.IBV_ATOMIC_HCA if attr.atomics else e.IBV_ATOMIC_NONE,
            phys_port_cnt=1,
        )

    def get_async_event(self) -> AsyncEvent:
        """Waits for the next asynchronous event."""
        with translated("get_async_event"):
            return AsyncEvent(self.verbs.get_async_event(timeout=inf))

    def query_device_ex(self, ex_input: object = None) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_device_ex", _EXTENDED)

    def query_rt_values_ex(self, comp_mask: int = 1) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_rt_values_ex", _EXTENDED)

    def query_port(self, port_num: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_port", _ADDRESSES)

    def query_pkey(self, port_num: int, index: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_pkey", _ADDRESSES)

    def query_gid(self, port_num: int, index: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_gid", _ADDRESSES)

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_gid_ex", _ADDRESSES)

    def query_gid_table(self, max_entries: int, flags: int = 0) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_gid_table", _ADDRESSES)

    def query_gid_type(self, port_num: int, index: int) -> NoReturn:
        """Raises `PyverbsRDMAError`."""
        raise unsupported("query_gid_type", _ADDRESSES)

    def close(self) -> None:
        """Closes everything that was made from the device, and the device if this opened it."""
        if self._opened:
            with translated("close"):
                self.verbs.close()
