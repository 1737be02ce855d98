"""Reference model of TCP over IPv4, written from the RFCs; no code of the gateware.

`host` joins connections behind an address, `connection` is one of them: RFC 9293 with 5681, 6298,
6582, 6928, 3042, 5961, 6528, 1191 and 5927; of 7323 window scaling, of 2018 the receiver's blocks.
Where they contradict each other or leave a choice:

* A SYN in SYN-RECEIVED with the number of the first one gets the SYN,ACK again, another one an ACK
  (RFC 5961, 4, rather than RFC 9293, 3.10.7.4).
* A wrong ACK field is answered by a reset in SYN-RECEIVED, and by an ACK later (RFC 5961, 5.2).
* The number of a reset in SYN-SENT is not looked at (erratum 8167 of RFC 9293).
* A SYN in TIME-WAIT opens the connection anew if its number is past all that was received, and if
  a passive OPEN made the connection (MAY-2).
* A segment that begins left of the window and ends right of it is refused (RFC 9293, Table 6).
* An illegal length ends the options; those before it hold (MUST-7).
* RFC 6582 begins with ``recover`` at ISS; here it is less, so that the first segment of a
  connection can be retransmitted fast.
* Hard ICMP errors end a handshake, and nothing else (RFC 5927, 5.2).
* FIN takes room in the peer's window and none in cwnd, which limits data (RFC 5681, 2).
* A smaller path MTU scales cwnd, and is no sign of congestion (RFC 5681, 3.1).
* SACK blocks go on segments without data, so that the segment size is constant.
* Urgent data stays in the stream; it is counted, and never sent.
* After a crash nothing waits for an MSL: RFC 6528 chooses the numbers (RFC 9293, 3.4.3).
"""
