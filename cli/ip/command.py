"""What `stagecoach ip` does."""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from stagecoach.cli.networks import NOBODY, networks
from stagecoach.cli.open_device import open_device
from stagecoach.cli.plain_text import printable
from stagecoach.host_driver.locate import Locator
from stagecoach.host_driver.network.errors import NoNeighbour
from stagecoach.host_driver.transport.base import TransportTimeout

_UNLIMITED = 1 << 30
"""A slow start threshold that no connection has reached."""


def show(as_json: bool) -> int:
    """Prints the networks of all programs that can be seen; returns the exit status."""
    found = list(networks())
    if as_json:
        print(json.dumps(found, indent=2))
        return 0
    if not found:
        print(NOBODY)
    for network in found:
        for line in _lines(network):
            print(printable(line))
    return 0


def _lines(network: dict[str, Any]) -> Iterator[str]:
    yield f"{network['device']}: {network['program']}"
    gateway = f" gateway {network['gateway']}" if network["gateway"] else ""
    yield (
        f"  address {network['address']} mac {network['mac']} mtu {network['mtu']}{gateway} "
        f"tcp {network['engine']}"
    )
    if network["carrier"] != "up":
        yield f"  carrier {network['carrier'] or 'unknown'}"
    for each in network["neighbours"]:
        seconds = each["age_us"] / 1e6
        yield f"  neighbour {each['address']} {each['mac'] or '-'} {each['state']} {seconds:.1f} s"
    for each in network["connections"]:
        qp = "" if each["qp"] is None else f" qp {each['qp']}"
        error = f" ({each['soft_error']})" if each["soft_error"] else ""
        yield f"  {each['state']} {each['local']} {each['remote']}{qp}{error}"
        if each["info"] is not None:
            yield f"    {_in_words(each['info'])}"


def _in_words(info: dict[str, Any]) -> str:
    """As `ss -ti` names things."""
    parts = [f"rto:{info['rto_us'] / 1000:g}"]
    if info["smoothed_rtt_us"] is not None:
        rtt, variance = info["smoothed_rtt_us"] / 1000, (info["rtt_variance_us"] or 0) / 1000
        parts.append(f"rtt:{rtt:g}/{variance:g}")
    parts += [f"mss:{info['maximum_segment_size']}", f"cwnd:{info['congestion_window']}"]
    if info["slow_start_threshold"] < _UNLIMITED:
        parts.append(f"ssthresh:{info['slow_start_threshold']}")
    names = {
        "snd_wnd": "send_window",
        "rcv_wnd": "receive_window",
        "unacked": "in_flight",
        "notsent": "queued",
        "segs_out": "segments_sent",
        "segs_in": "segments_received",
        "bytes_sent": "octets_sent",
        "bytes_received": "octets_received",
        "retrans": "retransmissions",
    }
    return " ".join(parts + [f"{short}:{info[name]}" for short, name in names.items()])


def ping(locator: Locator, address: str, count: int, octets: int, timeout: float) -> int:
    """Sends echoes, one a second; returns 0 if a reply came. Tells of them when interrupted too.

    Raises `NoNeighbour` if there is none for the first.
    """
    times: list[float] = []
    sent = 0
    with open_device(locator, address) as device:
        try:
            for number in range(count):
                begun = time.monotonic()
                sent += 1
                try:
                    times.append(device.stack.ping(address, timeout, octets) / 1000)  # type: ignore[union-attr]
                    print(f"{octets} bytes from {address}: seq={number} time={times[-1]:.3f} ms")
                except (TransportTimeout, NoNeighbour) as error:
                    if number == 0 and isinstance(error, NoNeighbour):
                        raise
                    print(f"seq={number} {error}")
                sys.stdout.flush()
                if number + 1 < count:
                    time.sleep(max(0.0, 1.0 - (time.monotonic() - begun)))
        except KeyboardInterrupt:
            _summary(sent, times)
            raise
        _summary(sent, times)  # before the device is closed: its capture may have failed
    return 0 if times else 1


def _summary(sent: int, times: list[float]) -> None:
    lost = 100 * (sent - len(times)) / max(1, sent)
    print(f"{sent} sent, {len(times)} received, {lost:.3g} % lost")
    if times:
        mean = sum(times) / len(times)
        print(f"least/mean/most {min(times):.3f}/{mean:.3f}/{max(times):.3f} ms")
