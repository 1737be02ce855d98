"""`stagecoach verilog`."""
