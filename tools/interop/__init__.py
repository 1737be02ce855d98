"""Runs the device and the commands against Linux in a virtual machine: `make interop`.

`packages` gets packages of Debian 12, `kernel` builds siw.ko for its kernel, and `image` makes of
both what `guest` boots in QEMU, which emulates the processor and needs no root. `host` runs
commands of `stagecoach`. `plan` lists the cases: `rping`, `messages`, `perftest` and `nfs` are
what they do, in a `lab`. `judge` runs them, `faults` knows those of the peer by what the wire
shows, and `report` writes build/interop.json and docs/interop.md.
"""
