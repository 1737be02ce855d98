"""Frames go to the MAC and come from it whole; of one that a link cuts, the rest is discarded."""

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from stagecoach.gateware.ethernet.mac_streams import MacStreams
from stagecoach.sim.cosim.streams import CLOCK_PERIOD_NS, seeded_random
from tests.support.runner import run_cocotb

SIZES = (1, 2, 7, 8, 9, 16, 60, 61, 1514)


def test_mac_streams() -> None:
    run_cocotb(MacStreams(), __name__)


async def begin(dut: Any, up: int) -> None:
    for name in ("tx__tvalid", "tx__tuser", "mac_rx__valid", "mac_tx__ready", "mac_reset"):
        getattr(dut, name).value = 0
    dut.up.value = up
    dut.rst.value = 1
    Clock(dut.clk, CLOCK_PERIOD_NS, unit="ns").start()
    for _ in range(2):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


def beats(frame: bytes) -> list[tuple[int, int, int]]:
    """Words of a frame: data, octets, whether it is the last one."""
    return [
        (
            int.from_bytes(frame[at : at + 8], "little"),
            len(frame[at : at + 8]),
            at + 8 >= len(frame),
        )
        for at in range(0, len(frame), 8)
    ]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_frames_to_the_mac_and_links_that_cut_them(dut: Any) -> None:
    rng = seeded_random()
    await begin(dut, 1)
    found, discarded = b"", 0
    for number in range(120):
        frame = rng.randbytes(rng.choice(SIZES))
        sends = beats(frame)
        # In the first frames there is always a link.
        fall = rng.randrange(len(sends)) if number > 20 and number % 3 == 0 else None
        rise = rng.randrange(len(sends)) if number > 20 and number % 3 == 1 else None
        if rise is not None:
            dut.up.value = 0
        found, cut = b"", rise is not None
        for at, (data, octets, last) in enumerate(sends):
            dut.tx__tvalid.value, dut.tx__tdata.value = 1, data
            dut.tx__tkeep.value, dut.tx__tlast.value = (1 << octets) - 1, last
            if at == fall:
                dut.up.value, cut = 0, True
            if at == rise and at:
                dut.up.value = 1
            while True:
                dut.mac_tx__ready.value = ready = int(rng.random() < 0.7)
                await RisingEdge(dut.clk)
                # Without a link nothing waits, and the MAC sees nothing.
                assert int(dut.tx__tready.value) == (1 if cut else ready)
                assert int(dut.mac_tx__valid.value) == (not cut)
                if dut.tx__tready.value:
                    break
            if not cut:
                assert int(dut.mac_tx__last.value) == last
                assert int(dut.mac_tx__last_be.value) == (1 << (octets - 1) if last else 0)
                found += int(dut.mac_tx__data.value).to_bytes(8, "little")[:octets]
        assert found == frame or (cut and frame.startswith(found))
        discarded += cut
        dut.up.value = 1
        if rng.random() < 0.5:
            dut.tx__tvalid.value = 0
            await RisingEdge(dut.clk)
    dut.tx__tvalid.value = 0
    for _ in range(2):
        await RisingEdge(dut.clk)
    assert int(dut.discarded.value) == discarded > 20


async def receive(dut: Any, frames: list[tuple[bytes, bool]]) -> None:
    """What the device gets; in each cycle it is ready."""
    part = b""
    while True:
        await RisingEdge(dut.clk)
        if not dut.rx__tvalid.value:
            continue
        keep, last = int(dut.rx__tkeep.value), bool(dut.rx__tlast.value)
        octets = keep.bit_count()
        assert keep == (1 << octets) - 1 and (octets if last else octets == 8)
        part += int(dut.rx__tdata.value).to_bytes(8, "little")[:octets]
        if last:
            frames.append((part, bool(dut.rx__tuser.value)))
            part = b""


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_frames_of_the_mac_and_links_that_cut_them(dut: Any) -> None:
    rng = seeded_random()
    await begin(dut, 1)
    frames: list[tuple[bytes, bool]] = []
    cocotb.start_soon(receive(dut, frames))

    async def idle(cycles: int) -> None:
        dut.mac_rx__valid.value = 0
        for _ in range(cycles):
            await RisingEdge(dut.clk)

    async def word(data: int, octets: int, last: int, bad: bool) -> None:
        dut.mac_rx__valid.value, dut.mac_rx__data.value = 1, data
        dut.mac_rx__last.value = last
        # Above the last octet anything may be left over.
        above = rng.getrandbits(8) & ~((1 << octets) - 1)
        dut.mac_rx__last_be.value = last and ((1 << (octets - 1)) | above)
        dut.mac_rx__error.value = (bad << (octets - 1) | above) if last else 0
        await RisingEdge(dut.clk)
        if rng.random() < 0.3:
            await idle(1)

    for number in range(120):
        frame, bad = rng.randbytes(rng.choice(SIZES)), rng.random() < 0.3
        words = beats(frame)
        kind = number % 4 if number > 20 else 0
        at = rng.randrange(len(words))
        if kind in (0, 1):
            # With a link; or it is there when the frame has begun, and nothing of it comes.
            dut.up.value = int(kind == 0)
            for index, each in enumerate(words):
                if kind == 1 and index == max(at, 1):
                    dut.up.value = 1
                await word(*each, bad)
            await idle(3)
            dut.up.value = 1
            assert frames == ([(frame, bad)] if kind == 0 else [])
        else:
            # The link is lost in the middle; of the MAC's frame comes no more, or all of it does.
            for each in words[:at]:
                await word(*each, bad)
            dut.up.value = 0
            if kind == 2:
                dut.mac_reset.value = 1
            else:
                for each in words[at:]:
                    await word(*each, bad)
            await idle(3)
            assert frames == ([(frame[: 8 * at] + frames[0][0][-1:], True)] if at else [])
            dut.mac_reset.value = 0
            dut.up.value = 1
        frames.clear()
        # The next one is whole.
        for each in beats(b"next frame"):
            await word(*each, False)
        await idle(3)
        assert frames == [(b"next frame", False)]
        frames.clear()
