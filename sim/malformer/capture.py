"""Writes one case, and what the device answered, as a packet capture."""

from pathlib import Path

from stagecoach.sim.capture.connections import Direction
from stagecoach.sim.capture.pcapng import PcapngWriter, TcpConversation
from stagecoach.sim.malformer.case import Case
from stagecoach.sim.malformer.compare import Observed
from stagecoach.sim.model import mpa
from stagecoach.sim.model.startup import REVISION, StartupFrame


def write_capture(path: Path, case: Case, observed: Observed) -> None:
    """The startup frames that settle what the case has, the stream, and the FPDUs of the device."""
    path.parent.mkdir(parents=True, exist_ok=True)
    setting = case.setting
    # M says what its sender wants to receive (RFC 5044, 7.1.1).
    device, peer = setting.markers_in, setting.markers_out
    request, reply = (device, peer) if setting.initiator else (peer, device)
    of_device, of_peer = Direction.TO_INITIATOR, Direction.TO_RESPONDER
    if setting.initiator:
        of_device, of_peer = of_peer, of_device
    framer = mpa.Framer(setting.markers_out, setting.crc)
    with PcapngWriter(path) as writer:
        conversation = TcpConversation(writer)
        for markers, direction, is_reply in (
            (request, Direction.TO_RESPONDER, False),
            (reply, Direction.TO_INITIATOR, True),
        ):
            frame = StartupFrame(
                reply=is_reply, markers=markers, crc=setting.crc, revision=REVISION
            )
            conversation.add(direction, frame.encode(), 0.0)
        for ulpdu in observed.requests:
            conversation.add(of_device, framer.frame(ulpdu), 1.0)
        conversation.add(of_peer, case.octets, 2.0)
        for ulpdu in observed.ulpdus:
            conversation.add(of_device, framer.frame(ulpdu), 3.0)
        conversation.close(4.0)
