"""The two engines behind one AXI port: what is written is read back from a foreign memory model."""

import cocotb
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiBus, AxiRam

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.axi import connect_axi
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.dma.read import ReadEngine
from stagecoach.gateware.dma.write import WriteEngine
from stagecoach.gateware.host_memory import MEMORY_COMMAND, READ_WORD, WORD, ReadClient, WriteClient
from stagecoach.sim.cosim.streams import (
    StreamSink,
    StreamSource,
    seeded_random,
    start_clock_and_reset,
)
from tests.dma.axi_slaves import random_pauses, words_of
from tests.support.runner import run_cocotb


class OnePort(wiring.Component):
    """A read engine and a write engine with one client each, joined to one port."""

    read: In(ReadClient())
    write: In(WriteClient())
    m_axi: Out(AxiSignature())

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = ReadEngine(RnicConfig(), [64])
        m.submodules.writer = writer = WriteEngine(RnicConfig(), 1)
        connect_axi(m, self.m_axi, reader.m_axi, writer.m_axi)
        wiring.connect(m, wiring.flipped(self.read), reader.clients[0])
        wiring.connect(m, wiring.flipped(self.write), writer.clients[0])
        return m


def test_written_octets_are_read_back():
    run_cocotb(OnePort(), __name__)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_written_octets_are_read_back(dut):
    rng = seeded_random()
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi_"), dut.clk, dut.rst, size=1 << 16)
    for channel in (
        ram.write_if.aw_channel,
        ram.write_if.w_channel,
        ram.write_if.b_channel,
        ram.read_if.ar_channel,
        ram.read_if.r_channel,
    ):
        channel.set_pause_generator(random_pauses(rng, 0.3))
    ram.write_if.log.setLevel("WARNING")
    ram.read_if.log.setLevel("WARNING")
    write_command = StreamSource(dut, "write__command", MEMORY_COMMAND)
    write_data = StreamSource(dut, "write__data", WORD)
    read_command = StreamSource(dut, "read__command", MEMORY_COMMAND)
    read_data = StreamSink(dut, "read__data", READ_WORD)
    await start_clock_and_reset(dut)
    image = bytearray(rng.randbytes(1 << 16))
    ram.write(0, image)
    for _ in range(30):
        octets = rng.randint(1, 3000)
        address = rng.randrange((1 << 16) - octets)
        content = rng.randbytes(octets)
        image[address : address + octets] = content
        count = words_of(address, octets)
        padded = (bytes(address % 8) + content).ljust(8 * count, b"\xff")
        command = {"address": address, "octets": octets}
        write_command.put(command)
        for number in range(count):
            data = int.from_bytes(padded[8 * number : 8 * number + 8], "little")
            write_data.put({"data": data, "last": number == count - 1})
        await RisingEdge(dut.write__done)
        read_command.put(command)
        words = await read_data.get_until("last")
        assert not any(word["error"] for word in words)
        got = b"".join(word["data"].to_bytes(8, "little") for word in words)
        assert got[address % 8 :][:octets] == content
    assert ram.read(0, 1 << 16) == image
