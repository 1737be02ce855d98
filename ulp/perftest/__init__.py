"""The tests of perftest 4.5+0.17 with rdma_cm: the other side may be any iWARP machine.

The facts are those of that version (Debian 12): the layouts of its C structs on x86-64, the order
in which its tools exchange them, and what each test posts.
"""
