"""The parts of a ring fetcher: which units of which ring are read from host memory next.

A visit of a QP reads one run of its units. It goes through parts, each a block with its own states:

    pick ───────► choose ─visit─► lookup ─found─► doorbell ─found─► plan ─read─► request ─► command
    doorbell ──►  │               │  │               │
    qp_command ─► │               │  └─failed─► failure ◄─refused─┘
    rescue ─────► │               └──idle─────► rescue ─► choose
                  └─command─► command

Each answers a question, in the file of its name:

choose      Who is next: a command, a lane that is taken back, a doorbell, or a QP that was kicked?
lookup      Where does the ring of the QP stand? It has the tables of all rings.
doorbell    May the ring have so many units, or is it an error?
plan        How many units are read, from where to where, and does the QP need a lane?
request     The read command, its tag, and how many of them are on their way.
rescue      Which lane is taken back, and which of its units are read again?
failure     Which unit is the first one that could not be read? It tells of all errors.
command     What do CREATE and DESTROY change?

What the parts tell each other is in `visit.py`. Nothing is copied: a visit stands in the registers
of `choose` until it is over, and what was found in those of `lookup`. A part begins in the cycle in
which its stream becomes valid, and its `ready` ends the visit. So one visit is under way at a time,
and `again` of a part has its QP visited once more.

`../ring_fetcher.py` joins them with the blocks that keep what was read: `kick_queue`,
`prefetch_lanes`, `unit_arrivals` and `prefetched_units`.

If a neighbour waits for ever: while `error` is not taken, a failed read is told later and others
are visited, but a doorbell that is refused holds its visit, and with it everything. While the read
command is not taken nothing is read: doorbells and commands of other kinds are taken still, CREATE
and DESTROY wait. A consumer that pops in every cycle, as `EntryPort` forbids, holds commands, the
lending of a lane and its return.
"""
