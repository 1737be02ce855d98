"""The two small devices of tests in cocotb: exported once in a process, built once for all."""

from stagecoach.gateware.config import RnicConfig
from stagecoach.sim.cosim.pair import RnicPair

PAIR = RnicPair(RnicConfig(qps=4, cqs=4, stags=16))
