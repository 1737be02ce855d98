"""ARP: the table, its timers and limits, and the own address (RFC 826, 1122, 5227)."""

from ipaddress import IPv4Address

import pytest

from stagecoach.host_driver.network import arp
from stagecoach.host_driver.network.address_claim import (
    RFC_5227,
    SHORT,
    AddressClaim,
    ClaimState,
)
from stagecoach.host_driver.network.arp import UNSPECIFIED, ArpPacket, Operation
from stagecoach.host_driver.network.ethernet import BROADCAST, Frame
from stagecoach.host_driver.network.icmp import Kind
from stagecoach.host_driver.network.neighbours import (
    MAXIMUM_NEIGHBOURS,
    MAXIMUM_SEARCHES,
    MAXIMUM_WAITING,
    NeighbourState,
)
from stagecoach.host_driver.network.settings import SECOND_US
from tests.host_driver.network.frames import FRAMES
from tests.host_driver.network.rig import (
    OWN,
    OWN_MAC,
    PEER,
    PEER_MAC,
    SETTINGS,
    Rig,
    arp_frame,
    arp_packets,
    icmp_messages,
)

REQUEST, REPLY = Operation.REQUEST, Operation.REPLY
ANSWER = ArpPacket(REPLY, PEER_MAC, PEER, OWN_MAC, OWN)
OTHER, OTHER_MAC = IPv4Address("192.0.2.9"), bytes.fromhex("020000000009")


@pytest.fixture
def rig(make_port) -> Rig:
    return Rig(port=make_port())


def ask(rig: Rig, count: int = 1, destination: IPv4Address = PEER) -> None:
    """Have packets for a neighbour."""
    for _ in range(count):
        rig.service.echo.ping(destination, b"", rig.port.now)


@pytest.mark.requirement("ARP-03")
def test_a_request_is_answered_and_its_sender_known(rig):
    """The frames are those of the vectors."""
    ours = bytes.fromhex("020000000002 020000000001 0806 0001080006040001")
    request = ours + FRAMES["arp-request"][22:]
    (reply,) = rig.take(request)
    assert reply == bytes.fromhex(
        "020000000001 020000000002 0806 0001 0800 06 04 0002"
        "020000000002 c0000202 020000000001 c0000201" + "00" * 18
    )
    (known,) = rig.service.neighbours.list(rig.port.now)
    assert (known.address, known.mac, known.state) == (PEER, PEER_MAC, NeighbourState.REACHABLE)


@pytest.mark.requirement("ARP-04", "IP-1122-2.3.2.2-01")
def test_packets_wait_for_the_reply_and_then_go(rig):
    ask(rig, 2)
    (request,) = arp_packets(rig.port.sent)
    assert request == ArpPacket(REQUEST, OWN_MAC, OWN, bytes(6), PEER)
    assert rig.port.sent[0][:6] == BROADCAST
    sent = icmp_messages(rig.take(arp_frame(ANSWER)))
    assert [each.kind for each in sent] == [Kind.ECHO] * 2
    ask(rig)
    assert rig.port.sent[-1][:6] == PEER_MAC


def test_no_more_than_the_newest_packets_wait(rig):
    ask(rig, MAXIMUM_WAITING + 3)
    sent = icmp_messages(rig.take(arp_frame(ANSWER)))
    assert [each.second for each in sent] == [4, 5, 6, 7]
    assert rig.counters["arp_waiting_dropped"] == 3


@pytest.mark.requirement("IP-1122-2.3.2.1-02")
def test_a_neighbour_is_asked_once_a_second_three_times_then_given_up(rig):
    ask(rig, 3)
    times = []
    for _ in range(45):
        ask(rig)
        times += [rig.port.now] * len(arp_packets(rig.run(0.1)))
        if rig.service.unreachable:
            break
    assert len(times) == 2  # besides the one before
    assert times[1] - times[0] == SECOND_US
    assert list(rig.service.unreachable) == [PEER]
    assert rig.counters["arp_failed"] == 1
    assert not rig.service.neighbours.list(rig.port.now)


@pytest.mark.requirement("IP-1122-2.3.2.1-01")
def test_an_old_neighbour_is_used_and_asked_by_unicast(rig):
    rig.know()
    rig.run(59.9)
    ask(rig)
    assert not arp_packets(rig.port.sent)
    rig.run(0.2)
    ask(rig)
    assert rig.port.sent[-1][:6] == PEER_MAC
    assert arp_packets(rig.port.sent) == [ArpPacket(REQUEST, OWN_MAC, OWN, bytes(6), PEER)]
    assert len(icmp_messages(rig.port.sent)) == 2
    (known,) = rig.service.neighbours.list(rig.port.now)
    assert known.state is NeighbourState.CHECKING
    rig.take(arp_frame(ANSWER))
    (known,) = rig.service.neighbours.list(rig.port.now)
    assert known.state is NeighbourState.REACHABLE


def test_an_old_neighbour_that_is_silent_is_forgotten(rig):
    rig.know()
    rig.run(61)
    ask(rig)
    rig.run(3.5)
    assert not rig.service.neighbours.list(rig.port.now)
    assert list(rig.service.unreachable) == [PEER]


@pytest.mark.requirement("IP-1122-2.3.2.1-01")
def test_the_table_can_be_flushed(rig):
    rig.know()
    ask(rig, destination=OTHER)
    rig.service.neighbours.flush()
    assert [each.address for each in rig.service.neighbours.list(0)] == [OTHER]


@pytest.mark.requirement("ARP-02")
@pytest.mark.parametrize("target", [OWN, PEER, OTHER])
@pytest.mark.parametrize("operation", [REQUEST, REPLY])
def test_a_neighbour_that_moves_is_followed(rig, operation, target):
    """By packets to this host, by announcements, and by packets to others; those get no answer."""
    rig.know()
    sent = rig.take(arp_frame(ArpPacket(operation, OTHER_MAC, PEER, bytes(6), target), BROADCAST))
    assert rig.service.neighbours.mac(PEER) == OTHER_MAC
    assert rig.counters["arp_moved"] == 1
    assert len(sent) == (operation is REQUEST and target == OWN)


@pytest.mark.parametrize(
    ("packet", "counter"),
    [
        (ArpPacket(REPLY, OTHER_MAC, OTHER, OWN_MAC, OWN), "arp_unsolicited"),
        (ArpPacket(REQUEST, OTHER_MAC, OTHER, bytes(6), PEER), "arp_not_for_us"),
        (ArpPacket(REQUEST, OTHER_MAC, OTHER, bytes(6), OTHER), "arp_not_for_us"),
        (ArpPacket(REQUEST, OTHER_MAC, IPv4Address("198.51.100.1"), bytes(6), OWN), "arp_off_link"),
    ],
)
def test_nobody_is_known_by_what_nobody_asked_for(rig, packet, counter):
    rig.take(arp_frame(packet, BROADCAST))
    assert rig.counters[counter] == 1
    assert not rig.service.neighbours.list(0)


@pytest.mark.requirement("ACD-2.1.1-02")
def test_a_probe_is_answered_and_not_learned(rig):
    probe = ArpPacket(REQUEST, OTHER_MAC, UNSPECIFIED, bytes(6), OWN)
    (reply,) = arp_packets(rig.take(arp_frame(probe, BROADCAST)))
    assert (reply.operation, reply.sender, reply.sender_mac) == (REPLY, OWN, OWN_MAC)
    assert not rig.service.neighbours.list(0)


def test_a_flood_of_neighbours_takes_no_more_than_its_room(rig):
    ask(rig, destination=IPv4Address("192.0.2.77"))
    for number in range(5000):
        address = IPv4Address(int(IPv4Address("192.0.2.3")) + number % 240)
        mac = b"\x02\x01" + number.to_bytes(4)
        rig.take(arp_frame(ArpPacket(REQUEST, mac, address, bytes(6), OWN), BROADCAST))
    known = rig.service.neighbours.list(rig.port.now)
    assert len(known) <= MAXIMUM_NEIGHBOURS
    assert rig.counters["arp_replies"] == 5000


def test_the_neighbour_heard_longest_ago_goes_first():
    rig = Rig(SETTINGS.parse("10.0.0.2/16", OWN_MAC))
    own = IPv4Address("10.0.0.2")
    ask(rig, destination=IPv4Address("10.0.77.77"))
    for number in range(3 * MAXIMUM_NEIGHBOURS):
        address = IPv4Address(int(IPv4Address("10.0.1.0")) + number)
        rig.take(arp_frame(ArpPacket(REQUEST, PEER_MAC, address, bytes(6), own), BROADCAST))
    known = [each.address for each in rig.service.neighbours.list(rig.port.now)]
    assert len(known) == MAXIMUM_NEIGHBOURS
    assert known[0] == IPv4Address("10.0.77.77")  # it is looked for
    assert known[-1] == address
    assert rig.counters["arp_evicted"] == 2 * MAXIMUM_NEIGHBOURS + 1


def test_no_more_than_so_many_are_looked_for_at_once(rig):
    for number in range(MAXIMUM_SEARCHES + 5):
        ask(rig, destination=IPv4Address(int(IPv4Address("192.0.2.3")) + number))
    assert len(arp_packets(rig.port.sent)) == MAXIMUM_SEARCHES
    assert rig.counters["arp_searches_full"] == 5


@pytest.mark.requirement("ACD-2.1.1-01", "ACD-2.3-01")
def test_the_address_is_probed_three_times_and_announced_twice():
    rig = Rig(claimed=False)
    sent = []
    for _ in range(50):
        sent += [(rig.port.now, packet) for packet in arp_packets(rig.run(0.1))]
    senders = [packet.sender for _, packet in sent]
    assert senders == [UNSPECIFIED] * 3 + [OWN] * 2
    assert {packet.target for _, packet in sent} == {OWN}
    assert sent[4][0] - sent[3][0] == 2 * SECOND_US


@pytest.mark.requirement("ACD-2.1.1-01")
def test_the_times_of_the_probes_are_those_of_rfc_5227():
    sent: list[tuple[int, Frame]] = []
    now = 0
    claim = AddressClaim(
        SETTINGS, lambda frame: sent.append((now, frame)), 0, RFC_5227, lambda count: count - 1
    )
    while claim.next_us is not None:
        now = claim.next_us
        claim.tick(now)
    assert [time for time, _ in sent] == [each * SECOND_US for each in (1, 3, 5, 7, 9)]
    quickest = AddressClaim(SETTINGS, lambda frame: None, 0, RFC_5227, lambda count: 0)
    times = []
    for _ in range(4):
        assert quickest.next_us is not None
        times.append(quickest.next_us)
        quickest.tick(quickest.next_us)
    assert times == [each * SECOND_US for each in (0, 1, 2, 4)]
    assert quickest.state is ClaimState.CLAIMED


@pytest.mark.requirement("ACD-2.1.1-01")
@pytest.mark.parametrize(
    "packet",
    [
        ArpPacket(REPLY, OTHER_MAC, OWN, OWN_MAC, OWN),
        ArpPacket(REPLY, OWN_MAC, OWN, OWN_MAC, OWN),
        ArpPacket(REQUEST, OTHER_MAC, OWN, bytes(6), PEER),
        ArpPacket(REQUEST, OTHER_MAC, UNSPECIFIED, bytes(6), OWN),
    ],
)
def test_somebody_with_the_address_is_found_by_the_probes(packet):
    rig = Rig(claimed=False)
    rig.take(arp_frame(packet, BROADCAST))
    assert rig.service.claim.state is ClaimState.DUPLICATE
    assert rig.service.claim.other == packet.sender_mac
    rig.port.sent.clear()
    assert not rig.run(10)


def test_what_the_wire_brings_back_is_no_duplicate():
    claim = AddressClaim(SETTINGS, lambda frame: None, 0, SHORT)
    claim.receive_probing(arp.ArpPacket(REQUEST, OWN_MAC, UNSPECIFIED, bytes(6), OWN))
    claim.receive_probing(ArpPacket(REQUEST, OTHER_MAC, UNSPECIFIED, bytes(6), PEER))
    assert claim.state is ClaimState.PROBING


def test_the_device_may_answer_when_the_address_is_claimed():
    """Not before, and it is told once; not at all if another interface has the address."""
    rig = Rig(claimed=False)
    rig.run(0.2)
    assert not rig.port.answers
    rig.run(4.0)
    assert rig.port.answers == [OWN]
    rig = Rig(claimed=False)
    rig.take(arp_frame(ArpPacket(REPLY, OTHER_MAC, OWN, OWN_MAC, OWN)))
    rig.run(4.0)
    assert not rig.port.answers


def test_nothing_but_arp_is_taken_before_the_address_is_claimed():
    rig = Rig(claimed=False)
    rig.take(FRAMES["icmp-echo-request"])
    assert rig.counters["address_not_claimed"] == 1
    assert not icmp_messages(rig.run(5))


@pytest.mark.requirement("ACD-2.4-01")
def test_the_address_is_defended_once_in_ten_seconds(rig):
    conflict = arp_frame(ArpPacket(REQUEST, OTHER_MAC, OWN, bytes(6), OWN), BROADCAST)
    defence = arp_packets(rig.take(conflict, conflict))
    assert defence == [ArpPacket(REQUEST, OWN_MAC, OWN, bytes(6), OWN)]
    rig.run(9.9)
    assert not rig.take(conflict)
    rig.run(0.2)
    assert len(rig.take(conflict)) == 1
    assert (rig.counters["arp_conflict"], rig.counters["address_defended"]) == (4, 2)
    assert not rig.service.neighbours.list(0)
