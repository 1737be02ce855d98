"""The RDMAP transmitter: work requests and requests of the peer become segments.

A visit of a QP sends one FPDU. It goes through steps, each a block with its own states:

    work ────────► choose ─message─► cut ─piece─► check ─record─► issue ─► job, error
    termination ─►   │                            │                 │
    qp_command ──►   └─command─► command          └─► STag table    └─► atomic unit
                   complete: progress to the contexts, pops of the queues

Each answers a question, in the file of its name:

choose      Which message does the QP send: one that has begun, a response, the oldest send
            entry, its Terminate? Which QP is next is decided by `queues/scheduler.py`.
cut         What of the message fits the MULPDU, and which pieces of which elements are that?
check       May it go: is there room, does the window take it? The STag table is asked.
issue       What did the STag table answer? The FPDU is given away, or the QP is stopped. Of an
            inbound atomic the target was asked about: the atomic unit has it, if it is aligned.
complete    Where does the QP stand after the FPDU, and what do its queues drop?
command     What does a QP command change?
kick        Is there more to do for this QP, and was that said already?

What the steps tell each other is in `message.py`. Between `choose`, `cut` and `check` nothing is
copied: a message stands in the registers of `choose` until its last piece is taken, a piece in
those of `cut`, and a step begins in the cycle in which its stream becomes valid. `issue` has a
copy of its own, so it waits for the STag table while the steps before it do the next visit.

Two FIFOs are filled on the way and emptied by the gatherer: the pieces, and the words of RDMAP
headers (`inline.py`). Those of an FPDU are seen together or never. What an FPDU is made of comes
from `lengths.py`, `header.py`, `inline.py` and `terminate.py`; what is known of each QP, from
`context.py`, `limits.py`, `leaving.py` and `atomic.py`. `transmitter.py` joins them all.

If a neighbour waits for ever: while `job`, `error` or an atomic is not taken, or the STag table
does not answer, `issue` is not free. Then `check` hands nothing over, `choose` begins no command
and no termination, and one more visit is under way at most. A store without room holds `check`, and
so does a table that takes nothing. The LLP's events are taken in any case.
"""
