"""Our TCP against Linux' own: a TAP in a network namespace, a wire of ours that makes disorder.

The end under test is behind `ours.Interface`, so that each case is written once and holds for
whatever stands there. Today that is the reference TCP by itself (`reference_interface`), what a
simulated card has, the driver's network and the engine (`network_interface`), and a compiled device
with all of that (`device_interface`). All are in the wall's time. Linux' end is `peer_program`, a
process with plain sockets that does what `peer.LinuxPeer` tells it. `test_device` has messages of
the device itself.

A test waits for events and compares octets; it never looks at rates. A loaded machine makes it
slower, not wrong: what is timed by the peers (retransmission, probes) may happen more often.
Where nothing may be sent twice both ends have a long retransmission timeout (`patient`).

No namespace, no TAP or no tshark: the tests fail and say so in one line. They need root, or
`unshare -rn` before the command that runs them. With LINUX_CAPTURES=FOLDER the captures stay.
"""

FAST = False  # needs root
