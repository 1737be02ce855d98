"""Ports to prefetched rings and to FIFOs that every QP has a part of."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig


class EntryPort(wiring.Signature):
    """Consumer's side of a prefetched ring (`queues/ring_fetcher.py`), seen from the consumer.

    A ring has the number of its QP. All count units. `level`, `posted` and `index` are those of QP
    `select` two cycles ago; `word` is word `word_address` of that QP's oldest units, two cycles
    after both were set. `coming` is what `select` is in the next cycle; if it is not, all of them
    are right a cycle later. Words of the second unit take a cycle more after `select` was set. A
    pop is of QP `select`, which has to be the same in the cycle before, as `coming` before that;
    the values are right three cycles later. A consumer never pops what `level` does not cover.
    `failed` comes with the `level` that does not rise any more, because the next unit could not be
    read.

    Parameters
    ----------
    words: of the units that one entry may have.
    """

    def __init__(self, config: RnicConfig, words: int):
        super().__init__(
            {
                "coming": Out(config.qp_bits),
                "select": Out(config.qp_bits),
                "level": In(8),  # units on chip
                "posted": In(16),  # units posted and not popped
                "index": In(16),  # running number of the oldest unit
                "failed": In(1),
                "word_address": Out(range(words)),
                "word": In(64),
                "pop": Out(1),
                "popping": Out(1),  # the same, for those who only look at it
                "pop_both": Out(1),  # the entry has two units
            }
        )


class ReceiveEntryPort(wiring.Signature):
    """The receive entries of each QP (`queues/shared_entries.py`), seen from their consumer.

    All is as with `EntryPort`, and each QP has an entry at a time: from `keep` to `pop` if there is
    `keep`, which is a pulse as `pop` and under the same rules. `shared` is of QP `select` two
    cycles ago: its oldest entry is one that other QPs may take. Before `keep` all words of such a
    one have to be read, in any order. `failed` is that of shared rings: a QP whose own one failed
    is stopped. `arriving` and `stays` take the place of `coming`, a cycle earlier, because the ring
    of the QP is looked up first: in the next cycle `coming` is `arriving`, or, with `stays`, what
    it is now. The QP is not created anew while it stays.
    """

    def __init__(self, config: RnicConfig, words: int):
        members = dict(EntryPort(config, words).members)
        del members["coming"]
        super().__init__(
            {
                **members,
                "arriving": Out(config.qp_bits),
                "stays": Out(1),
                "shared": In(1),
                "keep": Out(1),  # the message that takes the entry goes on
            }
        )


class QpFifoReader(wiring.Signature):
    """Reader's side of a `queues/qp_fifo.py`, seen from the reader.

    `level` is that of QP `select` two cycles ago, right three cycles after a pop or push; `head`
    takes one cycle more. A reader never pops at level 0. `pop` is a one-cycle strobe for QP
    `pop_qp`, which stands from the cycle before on.
    """

    def __init__(self, config: RnicConfig, shape: data.StructLayout, depth: int):
        super().__init__(
            {
                "select": Out(config.qp_bits),
                "head": In(shape),
                "level": In(range(depth + 1)),
                "pop": Out(1),
                "pop_qp": Out(config.qp_bits),
            }
        )


class QpFifoWriter(wiring.Signature):
    """Writer's side of a `queues/qp_fifo.py`, seen from the writer.

    `level` is that of QP `select` two cycles ago. A writer never pushes to a full FIFO. `push` is
    a one-cycle strobe for QP `push_qp`, which stands from the cycle before on.
    """

    def __init__(self, config: RnicConfig, shape: data.StructLayout, depth: int):
        super().__init__(
            {
                "select": Out(config.qp_bits),
                "level": In(range(depth + 1)),
                "push": Out(1),
                "push_qp": Out(config.qp_bits),
                "item": Out(shape),
            }
        )
