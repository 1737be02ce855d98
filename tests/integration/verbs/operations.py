"""What each operation of a send queue does when all is well."""

from dataclasses import replace

from stagecoach.host_driver import (
    MR,
    SGE,
    AccessFlags,
    FastMR,
    QPCap,
    RecvWR,
    SendFlags,
    SendWR,
    WCFlags,
    WCOpcode,
    WROpcode,
    inc_rkey,
    query_qp,
)
from tests.integration.rig import ALL, End
from tests.integration.verbs.pair import SECONDS, Pair, in_each, succeeded
from tests.support.verdicts import shows

SIGNALED, SOLICITED = SendFlags.SIGNALED, SendFlags.SOLICITED
OCTETS = bytes(range(1, 9))
WORD = 2**64 - 1


def word_at(end: End, offset: int) -> int:
    """The number that an atomic sees there."""
    return int.from_bytes(end.buffer[offset : offset + 8], "little")


@in_each([SIGNALED, SIGNALED | SOLICITED])
def check_send(pair: Pair, flags: SendFlags) -> None:
    """Gathered out of three elements, scattered into two; an empty one comes, too."""
    with pair.link() as link:
        one, other = link.active, link.passive
        other.qp.post_recv(RecvWR(7, [other.element(8, 100), other.element(200, 3000)]), RecvWR(8))
        parts = [one.element(5, 50), one.element(1000, 1), one.element(64, 2000)]
        one.qp.post_send(SendWR(1, sg=parts, send_flags=flags), SendWR(2, send_flags=flags))
        succeeded(one, (1, WCOpcode.SEND, 2051), (2, WCOpcode.SEND, 0))
        first, second = other.cq.wait(2, SECONDS)
        assert [(wc.wr_id, wc.byte_len) for wc in (first, second)] == [(7, 2051), (8, 0)]
        solicited = WCFlags.SOLICITED if flags & SOLICITED else WCFlags(0)
        assert {first.wc_flags, second.wc_flags} == {solicited}
        message = one.buffer[5:55] + one.buffer[1000:1001] + one.buffer[64:2064]
        assert other.buffer[8:108] + other.buffer[200:2151] == message
        assert not any(other.buffer[2151:])


@in_each([SIGNALED, SIGNALED | SOLICITED])
def check_send_with_inv(pair: Pair, flags: SendFlags) -> None:
    with pair.link() as link:
        one, other = link.active, link.passive
        with MR(other.pd, 64, AccessFlags.REMOTE_WRITE, qp=other.qp) as region:
            other.qp.post_recv(RecvWR(7, [other.element()]))
            one.qp.post_send(
                SendWR(1, WROpcode.SEND_WITH_INV, [one.element(0, 9)], flags, rkey=region.rkey)
            )
            succeeded(one, (1, WCOpcode.SEND, 9))
            (found,) = other.cq.wait(1, SECONDS)
            assert (found.byte_len, found.invalidated_rkey) == (9, region.rkey)
            assert found.wc_flags & WCFlags.WITH_INV
            assert bool(found.wc_flags & WCFlags.SOLICITED) == bool(flags & SOLICITED)
            assert region.invalidated and not other.mr.invalidated


def check_rdma_write_and_read(pair: Pair) -> None:
    """What was gathered and written is read back; the peer's program sees nothing of it."""
    with pair.link() as link:
        one, other = link.active, link.passive
        source = bytes(one.buffer)
        parts = [one.element(0, 1500), one.element(1500, 0), one.element(1500, 500)]
        write = SendWR(1, WROpcode.RDMA_WRITE, parts, **link.remote)
        back = [one.element(2000, 2000)]
        one.qp.post_send(write, replace(write, wr_id=2, opcode=WROpcode.RDMA_READ, sg=back))
        succeeded(one, (1, WCOpcode.RDMA_WRITE, 2000), (2, WCOpcode.RDMA_READ, 2000))
        assert other.buffer[:2000] == one.buffer[2000:4000] == source[:2000]
        assert not any(other.buffer[2000:])
        # Of no octets an address and a key are not looked at (RFC 5040, 5.1, 5.2).
        nothing = [SendWR(n, op, rkey=1) for n, op in enumerate(list(WROpcode)[:2])]
        one.qp.post_send(*nothing)
        succeeded(one, (0, WCOpcode.RDMA_WRITE, 0), (1, WCOpcode.RDMA_READ, 0))
        assert not other.cq.poll()
        sent = query_qp(pair.a, one.qp.qp_num).counters
        assert (sent.messages_sent, sent.outstanding_reads) == (4, 0)


@shows("EXT-6-01", "EXT-6.3-02", "EXT-6.3-03")
def check_immediate_data(pair: Pair) -> None:
    """Alone and with a Write before it: a receive has the octets, and its buffer is left alone."""
    with pair.link() as link:
        one, other = link.active, link.passive
        other.qp.post_recv(*(RecvWR(n, [other.element(0, 100)]) for n in range(3)))
        target = link.remote | {"remote_addr": other.mr.addr + 1000}
        parts = [one.element(1, 5), one.element(1, 4)]
        one.qp.post_send(
            SendWR(0, WROpcode.IMM_DATA, imm_data=OCTETS),
            SendWR(1, WROpcode.SEND, [one.element(1, 30)]),
            SendWR(
                *(2, WROpcode.RDMA_WRITE_WITH_IMM, parts, SIGNALED | SOLICITED),
                **target,
                imm_data=OCTETS[::-1],
            ),
        )
        succeeded(
            one, (0, WCOpcode.IMM_DATA, 8), (1, WCOpcode.SEND, 30), (2, WCOpcode.RDMA_WRITE, 9)
        )
        found = other.cq.wait(3, SECONDS)
        assert [(wc.wr_id, wc.opcode, wc.byte_len, wc.imm_data) for wc in found] == [
            (0, WCOpcode.RECV_RDMA_WITH_IMM, 8, OCTETS),
            (1, WCOpcode.RECV, 30, b""),
            (2, WCOpcode.RECV_RDMA_WITH_IMM, 8, OCTETS[::-1]),
        ]
        solicited = [bool(wc.wc_flags & WCFlags.SOLICITED) for wc in found]
        assert solicited == [False, False, True]
        assert [n for n, octet in enumerate(other.buffer) if octet] == [
            *range(30),
            *range(1000, 1009),
        ]


def check_atomics(pair: Pair) -> None:
    """Each gives back what was there, and changes no other octet."""
    steps = (
        (WROpcode.ATOMIC_FETCH_AND_ADD, {"compare_add": 5}, 0, 5),
        (WROpcode.ATOMIC_FETCH_AND_ADD, {"compare_add": WORD}, 5, 4),
        # Two fields of 8 bits: nothing is carried out of the lower one.
        (WROpcode.ATOMIC_FETCH_AND_ADD, {"compare_add": 0xFF, "add_mask": 0x80}, 4, 3),
        (WROpcode.ATOMIC_CMP_AND_SWP, {"compare_add": 3, "swap": 0xABCD}, 3, 0xABCD),
        (WROpcode.ATOMIC_CMP_AND_SWP, {"compare_add": 3, "swap": 1}, 0xABCD, 0xABCD),
        (
            WROpcode.ATOMIC_CMP_AND_SWP,
            {"compare_add": 0xCD, "compare_mask": 0xFF, "swap": WORD, "swap_mask": 0xF0},
            0xABCD,
            0xABFD,
        ),
        (WROpcode.ATOMIC_SWAP, {"swap": WORD}, 0xABFD, WORD),
    )
    with pair.link() as link:
        one, other = link.active, link.passive
        target = link.remote | {"remote_addr": other.mr.addr + 16}
        for number, (opcode, operands, before, after) in enumerate(steps):
            one.qp.post_send(SendWR(number, opcode, [one.element(3, 8)], **target, **operands))
            succeeded(one, (number, opcode.completed_as, 8))
            assert (word_at(one, 3), word_at(other, 16)) == (before, after), f"step {number}"
        assert not any(other.buffer[:16] + other.buffer[24:])


def check_reg_mr_and_local_inv(pair: Pair) -> None:
    """A region that two registrations in a row make the peer's; between them it is nobody's."""
    with pair.link() as link:
        one, other = link.active, link.passive
        region = FastMR(one.pd, 64)
        for number in range(2):
            key = inc_rkey(region.rkey)
            one.qp.post_send(
                SendWR(1, WROpcode.REG_MR, mr=region, rkey=key, access=ALL),
                SendWR(
                    *(2, WROpcode.RDMA_READ, [SGE(region.addr, 64, key)]),
                    **link.remote,
                ),
                SendWR(3, WROpcode.LOCAL_INV, send_flags=SIGNALED | SendFlags.FENCE, rkey=key),
            )
            assert region.rkey == key
            other.buffer[:64] = bytes([number + 1]) * 64
            succeeded(
                *(one, (1, WCOpcode.REG_MR, 64)),
                *((2, WCOpcode.RDMA_READ, 64), (3, WCOpcode.LOCAL_INV, 0)),
            )
            assert region.invalidated
        region.close()


@in_each([True, False])
def check_signaling(pair: Pair, all_signaled: bool) -> None:
    """Several requests of one doorbell; those that are not signaled complete silently."""
    with pair.link(active={"sq_sig_all": all_signaled}) as link:
        one, other = link.active, link.passive
        other.qp.post_recv(*(RecvWR(n, [other.element()]) for n in range(6)))
        flags = [SendFlags(0), SIGNALED] * 3
        one.qp.post_send(
            *(SendWR(n, sg=[one.element(n, 1)], send_flags=flags[n]) for n in range(6))
        )
        expected = range(6) if all_signaled else (1, 3, 5)
        succeeded(one, *((n, WCOpcode.SEND, 1) for n in expected))
        succeeded(other, *((n, WCOpcode.RECV, 1) for n in range(6)))
        assert not one.cq.poll()


def check_inline(pair: Pair) -> None:
    """The buffer is the program's when the post returns; with more rounds than it has slots."""
    with pair.link(active={"cap": QPCap(2, 2, max_inline_data=16)}) as link:
        one, other = link.active, link.passive
        flags = SIGNALED | SendFlags.INLINE
        for number in range(5):
            other.qp.post_recv(RecvWR(7, [other.element(100, 16)]))
            message = bytes([number + 1]) * 16
            one.buffer[:16] = message
            one.qp.post_send(
                SendWR(1, WROpcode.RDMA_WRITE, [one.element(0, 8)], flags, **link.remote),
                SendWR(2, sg=[one.element(0, 16)], send_flags=flags),
            )
            one.buffer[:16] = bytes(16)
            succeeded(one, (1, WCOpcode.RDMA_WRITE, 8), (2, WCOpcode.SEND, 16))
            succeeded(other, (7, WCOpcode.RECV, 16))
            assert other.buffer[:8] == message[:8] and other.buffer[100:116] == message


def check_fence(pair: Pair) -> None:
    """What sends the sink of an RDMA Read waits for it with a fence."""
    with pair.link() as link:
        one, other = link.active, link.passive
        other.buffer[:1000] = bytes([0xEE]) * 1000
        target = link.remote | {"remote_addr": other.mr.addr + 2000}
        sink = [one.element(0, 1000)]
        one.qp.post_send(
            SendWR(1, WROpcode.RDMA_READ, sink, **link.remote),
            SendWR(2, WROpcode.RDMA_WRITE, sink, SIGNALED | SendFlags.FENCE, **target),
            SendWR(3, WROpcode.RDMA_READ, [one.element(1000, 1)], **link.remote),
        )
        succeeded(
            *(one, (1, WCOpcode.RDMA_READ, 1000)),
            *((2, WCOpcode.RDMA_WRITE, 1000), (3, WCOpcode.RDMA_READ, 1)),
        )
        assert other.buffer[2000:3000] == other.buffer[:1000]


def check_query(pair: Pair) -> None:
    """What a connected QP is."""
    with pair.link(ord=3) as link:
        attr, init_attr = link.active.qp.query()
        assert (attr.qp_state.name, attr.max_rd_atomic, attr.path_emss) == ("RTS", 3, 1460)
        assert init_attr.rfc7306 and attr.cap == init_attr.cap
        assert link.active.qp.receives_posted == 0
        link.passive.qp.post_recv(RecvWR(1))
        assert link.passive.qp.receives_posted == 1
        assert link.passive.qp.query_state()[0].name == "RTS"
