"""Layouts of queue entries, made from the table that host and device share."""

from amaranth.lib import data

from stagecoach.hw.interface.queue_entries import COMPLETION_ENTRY, EVENT_ENTRY, Fields


def entry_layout(fields: Fields) -> data.StructLayout:
    """Return the layout of an entry: byte i of it is bits [8i:8i+8] (little endian)."""
    return data.StructLayout({name: 8 * octets for name, octets, _ in fields})


COMPLETION_LAYOUT = entry_layout(COMPLETION_ENTRY)
EVENT_LAYOUT = entry_layout(EVENT_ENTRY)
