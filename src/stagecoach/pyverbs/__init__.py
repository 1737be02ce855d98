"""The names and signatures of rdma-core's pyverbs, over the verbs of this package.

A program that was written for pyverbs 44 runs with `stagecoach.pyverbs` in place of `pyverbs`: the
modules, classes and methods have the names, parameters and defaults of the original. They are thin:
each object has that of `stagecoach` in its attribute `verbs`, for what pyverbs cannot say.

What an iWARP device of this project does not have raises `PyverbsRDMAError` with EOPNOTSUPP, and
says what is missing. docs/pyverbs.md lists what is the same, what differs, and why.
"""
