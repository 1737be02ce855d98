"""Which connection a segment belongs to: a keyed hash, two slots, the whole key compared."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.tcp.layouts import KEY

SLOTS_BITS = 11
"""log2 of the slots of a way: with a connection of 8 bits and a flag, one block RAM."""

STEP_BITS = 24
"""Of a key, in a cycle of the hash: four cycles."""

HASH_BITS = 32
SECRET_BITS = KEY.size + HASH_BITS - 1
"""Of the Toeplitz hash over a key."""

_STEPS = KEY.size // STEP_BITS

_PARTS_BITS = HASH_BITS + _STEPS - 1
"""Of the hash, before its last step."""


class LookupOperation(enum.Enum, shape=2):
    """What is done with a key."""

    FIND = 0
    INSERT = 1  # for `connection`
    DELETE = 2  # if it is there


def lookup_command(connection_bits: int) -> data.StructLayout:
    """Return the layout of an insertion, or a deletion."""
    return data.StructLayout({"delete": 1, "connection": connection_bits, "key": KEY})


def lookup_result(connection_bits: int) -> data.StructLayout:
    """Return the layout of a result: `connection` if it was `found`, or inserted, or deleted."""
    return data.StructLayout({"found": 1, "connection": connection_bits})


class Lookup(wiring.Component):
    """Finds the connection with exactly these ends among those that were inserted.

    The hash is Toeplitz's over source, destination, source port and destination port of a segment,
    as receive side scaling of network cards has it, with a secret: who does not know it cannot
    choose ends that meet in one place. Bits 0 and up of the hash are the slot in one way, the bits
    after them that in the other. A slot names a connection, whose key is in a table of its own.

    A command comes before a request that waits. An insertion takes the free slot of the two, the
    first one before the second; if there is none, nothing changes and `done` has `found` low. The
    driver inserts a key once, and a connection after it was deleted. A deletion of what is not
    there changes nothing, too. After the reset the slots are cleared, one in a cycle; until then
    nothing is taken.

    One operation every 10 cycles: the shortest frames come in 10.5. A result is offered 9 cycles
    after its request was taken; it waits until it is taken, and nothing else is begun then. No
    counter.

    Parameters
    ----------
    connections: 2 to 256. slots_bits: log2 of the slots of a way, 2 to 16.

    Members
    -------
    secret: of the hash; it may change only while no connection is inserted. Its first bit is the
        highest.
    request: ends of a segment. result: of each request, in order.
    command: insertions and deletions. done: of each command, in order.
    """

    def __init__(self, connections: int = 64, slots_bits: int = SLOTS_BITS):
        if not 2 <= connections <= 256:
            raise ValueError(f"Lookup connections is {connections!r}; allowed: 2 to 256")
        if not 2 <= slots_bits <= HASH_BITS // 2:
            raise ValueError(f"Lookup slots_bits is {slots_bits!r}; allowed: 2 to 16")
        self._connections = connections
        self._connection_bits = (connections - 1).bit_length()
        self._slots_bits = slots_bits
        result = lookup_result(self._connection_bits)
        super().__init__(
            {
                "secret": In(SECRET_BITS),
                "request": In(stream.Signature(KEY)),
                "result": Out(stream.Signature(result)),
                "command": In(stream.Signature(lookup_command(self._connection_bits))),
                "done": Out(stream.Signature(result)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slot_layout = data.StructLayout({"used": 1, "connection": self._connection_bits})
        depth = 1 << self._slots_bits
        # What is read while an answer, or the reset, writes is not looked at.
        ways = [
            memory.Memory(shape=slot_layout, depth=depth, init=[], attrs=NO_COLLISION)
            for _ in range(2)
        ]
        m.submodules += ways
        m.submodules.keys = keys = memory.Memory(
            shape=KEY, depth=self._connections, init=[], attrs=NO_COLLISION
        )
        writes = [way.write_port() for way in ways]
        reads = [way.read_port() for way in ways]
        key_write, key_read = keys.write_port(), keys.read_port()

        operation = Signal(LookupOperation)
        key = Signal(KEY)
        connection = Signal(self._connection_bits)
        parts = Signal(_PARTS_BITS)  # of the hash
        hashed = parts[_STEPS - 1 :]
        step = Signal(range(_STEPS))
        slots = [Signal(slot_layout, name=f"slot_{number}") for number in range(2)]
        matches = Signal(2)
        chosen = Signal()  # the way that is written

        for number, (read, write) in enumerate(zip(reads, writes, strict=True)):
            place = hashed[number * self._slots_bits :][: self._slots_bits]
            m.d.comb += [read.addr.eq(place), write.addr.eq(place)]
        m.d.comb += [key_write.addr.eq(connection), key_write.data.eq(key)]

        cleared = Signal(self._slots_bits)
        with m.FSM(init="CLEAR"):
            with m.State("CLEAR"):  # every slot becomes free
                for write in writes:
                    m.d.comb += [write.addr.eq(cleared), write.en.eq(1)]
                m.d.sync += cleared.eq(cleared + 1)
                with m.If(cleared.all()):
                    m.next = "TAKE"
            with m.State("TAKE"):  # a command or a request
                m.d.comb += [
                    self.command.ready.eq(1),
                    self.request.ready.eq(~self.command.valid),
                ]
                command = self.command.p
                m.d.sync += [
                    connection.eq(command.connection),
                    parts.eq(0),
                    step.eq(0),
                ]
                m.d.sync += Value.cast(key).eq(
                    Mux(self.command.valid, command.key.as_value(), self.request.p.as_value())
                )
                with m.If(~self.command.valid):
                    m.d.sync += operation.eq(LookupOperation.FIND)
                with m.Elif(command.delete):
                    m.d.sync += operation.eq(LookupOperation.DELETE)
                with m.Else():
                    m.d.sync += operation.eq(LookupOperation.INSERT)
                with m.If(self.command.valid | self.request.valid):
                    m.next = "HASH"
            with m.State("HASH"):
                # In each cycle one bit of every four of the key, the last one first; what it adds
                # moves on with those before it. Each four turn by one, and are as they were then.
                bits = Cat(key.local_port, key.remote_port, key.local, key.remote)
                total = (parts << 1)[:_PARTS_BITS]
                for place in range(0, KEY.size, _STEPS):
                    window = self.secret[place : place + _PARTS_BITS]
                    total = total ^ (window & bits[place].replicate(_PARTS_BITS))
                value = Value.cast(key)
                m.d.sync += [
                    parts.eq(total),
                    value.eq(
                        Cat(
                            value[place : place + _STEPS].rotate_right(1)
                            for place in range(0, KEY.size, _STEPS)
                        )
                    ),
                    step.eq(step + 1),
                ]
                with m.If(step == _STEPS - 1):
                    m.next = "SLOTS"
            with m.State("SLOTS"):  # both are being read
                m.next = "FIRST"
            with m.State("FIRST"):  # they are there; the key of the first one is being read
                m.d.comb += key_read.addr.eq(reads[0].data.connection)
                m.d.sync += [slot.eq(read.data) for slot, read in zip(slots, reads, strict=True)]
                m.next = "SECOND"
            with m.State("SECOND"):  # the key of the second one is being read
                m.d.comb += key_read.addr.eq(slots[1].connection)
                m.d.sync += matches[0].eq(slots[0].used & (key_read.data == key))
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += [
                    matches[1].eq(slots[1].used & (key_read.data == key)),
                    chosen.eq(slots[0].used),
                ]
                m.next = "ANSWER"
            with m.State("ANSWER"):  # until it is taken
                found = matches.any()
                finds = operation == LookupOperation.FIND
                inserts = operation == LookupOperation.INSERT
                free = ~slots[0].used | ~slots[1].used
                match = Array(slot.connection for slot in slots)[matches[1]]
                m.d.comb += [
                    self.result.valid.eq(finds),
                    self.result.p.found.eq(found),
                    self.result.p.connection.eq(match),
                    self.done.valid.eq(~finds),
                    self.done.p.found.eq(Mux(inserts, free, found)),
                    self.done.p.connection.eq(Mux(inserts, connection, match)),
                ]
                m.d.comb += key_write.en.eq(inserts)
                for number, write in enumerate(writes):
                    m.d.comb += [
                        write.data.used.eq(inserts),
                        write.data.connection.eq(connection),
                        write.en.eq(
                            Mux(inserts, free & (chosen == number), ~finds & matches[number])
                        ),
                    ]
                with m.If(Mux(finds, self.result.ready, self.done.ready)):
                    m.next = "TAKE"
        return m
