"""The memory of a board: how its controller is reached, initialised, levelled and tested."""
