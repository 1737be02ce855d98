"""Register addresses and fields, made from hw/interface/memory.rdl by
`python -m stagecoach.hw.interface.generate`. Do not edit.
"""

from stagecoach.host_driver.registers import Field, Register

MEMORY_ID = Register(
    0x600,
    {
        "magic": Field(0, 32),
    },
    0x4D454D69,
)
MEMORY_INTERFACE = Register(
    0x604,
    {
        "digest": Field(0, 32),
    },
    0xDDC02FB2,
)
MEMORY_ADDRESS = Register(
    0x608,
    {
        "word": Field(2, 30),
    },
)
MEMORY_WRITE = Register(
    0x60C,
    {
        "value": Field(0, 32),
    },
)
MEMORY_READ = Register(
    0x610,
    {
        "start": Field(0, 1),
    },
)
MEMORY_VALUE = Register(
    0x614,
    {
        "value": Field(0, 32),
    },
)
MEMORY_STATUS = Register(
    0x618,
    {
        "busy": Field(0, 1),
    },
)
MEMORY_ERRORS = Register(
    0x61C,
    {
        "error": Field(0, 1),
        "late": Field(1, 1),
        "overrun": Field(2, 1),
    },
)
MEMORY_HOLD = Register(
    0x620,
    {
        "hold": Field(0, 1),
    },
)
