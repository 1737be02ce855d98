"""Messages that a device sends, as cocotb tests of one device.

The entries of all messages are in the send queues before the doorbells, one for each QP; only the
last entry of a queue is signaled. The LLP is always ready.
"""

from typing import Any

import cocotb
from cocotb.task import bridge

from bench.peer import REMOTE_STAG
from bench.ports import SentFpdus
from bench.rig import Bench, open_device, options, report
from bench.stamps import steady
from stagecoach.host_driver import SGE, SendWR, WROpcode
from stagecoach.host_driver.enums import SendFlags

OPCODES = {"write": WROpcode.RDMA_WRITE, "send": WROpcode.SEND}


def requests(bench: Bench, operation: str, octets: int, count: int) -> list[SendWR]:
    """So many messages from the start of the buffer; only the last one is signaled."""
    elements = [SGE(bench.mr.addr, octets, bench.mr.lkey)] if octets else []

    def request(flags: SendFlags) -> SendWR:
        return SendWR(
            opcode=OPCODES[operation],
            sg=elements,
            send_flags=flags,
            rkey=REMOTE_STAG if operation == "write" else 0,
        )

    return [request(SendFlags(0))] * (count - 1) + [request(SendFlags.SIGNALED)]


@cocotb.test()
async def check_transmit(dut: Any) -> None:
    """Bytes, messages and cycles of the FPDUs that leave, each at its last beat."""
    case = options()
    device = await open_device(dut, case)
    sent = SentFpdus(device, case["markers"])
    octets, each = case["octets"], case["messages"] // case["qps"]

    def run() -> None:
        bench = Bench(
            device,
            max(octets, 8),
            case["emss"],
            case["qps"],
            depth=max(each, 2),
            markers=case["markers"],
            slow=case["slow"],
        )
        for qp in bench.at_work:
            qp.post_send(*requests(bench, case["operation"], octets, each))

    await bridge(run)()
    await sent.reach(dut, each * case["qps"])
    report(steady(sent.stamps))
