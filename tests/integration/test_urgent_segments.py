"""The TCP engine in gateware and the reference TCP count segments with URG alike."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from stagecoach import CycleTime, SimulatedNic
from stagecoach.sim.model.tcp.segment import Flags, decode_packet, encode_packet
from tests.support.compiled_nic import NIC_CONFIG, nic_library

OCTETS = 20_000

pytestmark = [
    pytest.mark.usefixtures("compiled_device", "compiled_nic"),
    pytest.mark.timeout(300),
]


def urgent(frame: bytes) -> bytes:
    """The frame of a segment, with URG."""
    packet, segment = decode_packet(frame[14:])
    segment = replace(segment, flags=segment.flags | Flags.URG, urgent=3)
    return frame[:14] + encode_packet(segment, packet.source, packet.destination)


@pytest.mark.requirement("TCP-MUST-30")
def test_urgent_segments_are_counted_and_their_octets_stay_in_the_stream(tmp_path, monkeypatch):
    time, sent = CycleTime(), Counter[str]()
    address = f"sim://?wire=pair:{tmp_path.name}&ip=192.0.2."
    with (
        SimulatedNic(
            f"{address}1/24&tcp=engine", NIC_CONFIG, time=time, library=nic_library()
        ) as engine,
        SimulatedNic(f"{address}2/24&tcp=reference", time=time) as reference,
        reference.listen("", 0) as listener,
    ):
        active = engine.connect("192.0.2.2", listener.address[1], 10)
        passive = listener.accept(10)
        for name, nic in (("engine", engine), ("reference", reference)):
            assert "frames_urgent" not in nic.stack.counters

            def send(frame: bytes, name: str = name, send: Any = nic._card._send) -> bool:
                """Of data every second one."""
                if len(decode_packet(frame[14:])[1].payload) == 0:
                    return send(frame)
                taken = send(urgent(frame) if sent[name] % 2 else frame)
                sent[name] += taken
                return taken

            monkeypatch.setattr(nic._card, "_send", send)
        content = bytes(range(250)) * (OCTETS // 250)
        for source, sink in ((active, passive), (passive, active)):
            source.sendall(content, 10)
            assert sink.receive_exactly(OCTETS, 10) == content
        for nic, peer in ((engine, "reference"), (reference, "engine")):
            assert sent[peer] > OCTETS // 1460
            assert nic.stack.counters["frames_urgent"] == sent[peer] // 2
            assert "tcp_urgent" not in nic.stack.counters
