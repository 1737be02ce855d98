"""The RDMAP receiver: checks each segment, then places its payload and delivers its message.

A segment goes through steps, each a block with its own states:

    segment ────► take ─work─► header ─┬─► send ─────┐
    qp_command ─►   │            │     ├─► request ──┼─verdict─► record ─record─► access
                    │            │     └─► response ─┤
                    │            └───────────────────┘
                    └─command─► following: the context of the QP

Each answers a question, in the file of its name:

take        Is there a segment, and none at work? What does a QP command change?
header      Is it dropped, a Write, or refused by its header? Else, which step is it for?
send        Is there a receive entry for a Send or Immediate Data, and does the payload fit?
request     May the peer read, or change a word, but for the rights of the STag?
response    Is it the next part of what the oldest outstanding request asks for?
record      What is told of the segment, and what do the queues of its QP drop or get?
following   What is the next segment of the QP compared with?
access      Are its STags allowed? Then it is placed and delivered, before the next one.

One segment is in the steps from `take` to `record`, which `judge.py` joins: it stands in the
registers of `take` until its record is taken, and each step begins in the cycle in which its stream
becomes valid. The step that judges gives its verdict once, in one pulse; the others say nothing
then. What is known of the segment comes from `decode.py`, `checks.py` and `pieces.py` (which has
`scan.py`), what is known of its QP from `following.py` (which has `context.py`) and `running.py`.
`receiver.py` joins all of it with `access`, which has a record of its own and works at the segment
before.

If a neighbour waits for ever: while `access` takes no record, its segment stays at work and nothing
is taken; no command, either. A Send whose receive entry does not come waits until its QP is
stopped, and all segments after it.
"""
