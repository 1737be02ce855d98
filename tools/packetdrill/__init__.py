"""Runs packetdrill's scripts against the reference TCP and the TCP engine in gateware, in simulated
time: `make packetdrill`.

packetdrill is built from the path that the user names; nothing of it is kept here. `build` makes
it and `shared_object.c`, which passes packetdrill's calls to `server`. There `sockets` gives the
reference TCP (`stagecoach.sim.model.tcp`) the calls of a socket, and `world` its time: it stands
still but where packetdrill sleeps or waits for a packet, so that a script takes no time of its own
and each event has its exact microsecond. `engine_world` has a NIC instead, whose time goes on while
it works. `scripts` runs one script; `excused.toml` has those that do not pass, each with the
reason, `excused_engine.toml` those of which that is otherwise on the engine; `trace` is the form in
which what passed is kept in tests/data/tcp/packetdrill.txt.
"""
