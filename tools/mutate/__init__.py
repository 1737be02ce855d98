"""Changes the gateware at random single points and tells whether a test notices: `make mutate`.

`points` draws the changes, `netlist` tells whether one is a change of the hardware, `nearest` says
which tests are to notice it, `judge` runs them on a copy of the project, and `verdict` is the part
of it inside pytest. `explained.toml` has the survivors that stay, each with the reason.

The operators are those of cosmic-ray, and three of ours for what Amaranth writes as calls. Its
sessions are not used: they end a mutant at the first command that fails, and here one that is not
built, or is the same hardware, is not a mutant.
"""
