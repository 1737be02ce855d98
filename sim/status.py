"""How a call of a simulated device ended."""

import enum


class Status(enum.IntEnum):
    """Results of the calls in `sim/runtime/api.cpp`."""

    OKAY = 0
    FAILED = 1  # the simulation thread ended with an exception
    CLOSED = 2  # the device is closed
    BUS_ERROR = 3  # the device answered a register access with an error response
    TIMEOUT = 4  # the device did not answer a register access
    INVALID = 5  # an argument does not fit the state of the device
    NOT_FLUSHED = 6  # detached, but not everything was sent in time
