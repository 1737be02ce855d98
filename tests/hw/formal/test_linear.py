"""What an XOR tree adds up is found, whatever its shape, and what is no sum is told."""

import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from stagecoach.hw.formal.harness import TOP, Model
from stagecoach.hw.formal.linear import NoSumError, sums
from stagecoach.hw.formal.properties import crc32c
from stagecoach.hw.formal.prove import Mode, Task, prove
from stagecoach.hw.rtlil import export
from stagecoach.sim.model.crc32c import crc32c as model_crc32c


class Adds(wiring.Component):
    a: In(3)
    chain: Out(1)
    tree: Out(2)
    product: Out(1)

    def elaborate(self, platform):
        m = Module()
        a = self.a
        m.d.comb += [
            self.chain.eq(a[0] ^ a[1] ^ a[2] ^ a[1]),
            self.tree.eq(Cat(a.xor(), 0)),
            self.product.eq(a[0] & a[1]),
        ]
        return m


def test_sums_of_a_netlist(tmp_path):
    found = {}

    def look(netlist):
        inputs = dict(zip(netlist.bits("a"), (1, 2, 4), strict=True))
        found["chain"] = sums(netlist, "chain", inputs)
        found["tree"] = sums(netlist, "tree", inputs)
        with pytest.raises(NoSumError, match=r"product hangs on \$and"):
            sums(netlist, "product", inputs)
        with pytest.raises(NoSumError, match="tree hangs on nothing"):
            sums(netlist, "tree", {})
        return []

    model = Model({"adds.il": export(Adds(), TOP)}, ("read_rtlil adds.il", "proc", "flatten"))
    assert prove(Task(model, Mode.NETLIST, 0, "", look), tmp_path).passed
    assert found == {"chain": [0b101], "tree": [0b111, 0]}


def test_reference_of_the_proof_is_crc32c():
    data = b"123456789"
    bits = [octet >> place & 1 for octet in data for place in range(8)]
    register = crc32c._step([1] * 32, bits)
    # The check value of CRC-32C, and the model of the simulation
    assert sum(bit << place for place, bit in enumerate(register)) ^ crc32c.ONES == 0xE3069283
    assert model_crc32c(data) == 0xE3069283
