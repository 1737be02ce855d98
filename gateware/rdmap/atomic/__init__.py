"""The atomics of RFC 7306, as the responder performs them.

An operation goes through stages, each a block with its own states, in the order in which it came:

    request ────► accept ─operands, earlier─► compute ─outcomes─► settle
                    │                        ▲   │                ▲   │ statuses
                    ▼                        │   ▼                │   ▼
                  read command            word   write     response   respond ────► response

Each answers a question, in the file of its name:

accept      Which word does an operation change, and which one before it may still write that?
compute     What does it find there, and what does it leave?
settle      How did its write end, and that of the value which it returned?
respond     What is the requester told?

Nothing is handed over: what is known of an operation stands in tables, each of the stage that
writes it, and a later stage reads it there. A stage counts the operations that it has done, and the
next one works as long as its own count is another one: `accepted`, `computed`, `settled` and
`answered` are the pointers of one ring. What the stages tell each other is in `operations.py`;
`addresses.py` finds the one before, for `accept`, and `arithmetic.py` has the result, for
`compute`. `unit.py` joins the stages.

An operation that starts over goes backwards: `settle` finds it (`failed_under`), `accept` waits
until it is alone and has its word read (`again`), `compute` computes it anew (`recomputed`), and
`settle` ends it (`settles`).

If a neighbour waits for ever: while a read command is not taken `accept` takes no request, while a
write is not taken `compute` computes no other operation, and without a word or a write response
no later operation is computed or settled. While `response` is not taken operations are settled all
the same. In each of these cases no request is taken any more once the ring is full.
"""
