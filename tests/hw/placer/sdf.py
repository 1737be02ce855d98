"""The delays of a LUT between two flip-flops, as nextpnr writes them."""

SDF = """(DELAYFILE
  (SDFVERSION "3.0")
  (CELL
    (CELLTYPE "top")
    (INSTANCE )
    (DELAY
      (ABSOLUTE
        (INTERCONNECT first_TRELLIS_FF_Q/Q sum_LUT4_Z/A (100:200:1000) (100:200:1000))
        (INTERCONNECT sum_LUT4_Z/F second_TRELLIS_FF_Q/DI (1:1:500) (1:1:500))
        (INTERCONNECT \\$PACKER_VCC/Y sum_LUT4_Z/B (1:1:90000) (1:1:90000))
        (INTERCONNECT sum_LUT4_Z/F first_TRELLIS_FF_Q/CE (1:1:2) (1:1:2))
      )
    )
    )
  (CELL
    (CELLTYPE "TRELLIS_COMB")
    (INSTANCE sum_LUT4_Z)
    (DELAY
      (ABSOLUTE
        (IOPATH A F (100:150:200) (100:150:200))
        (IOPATH B F (100:150:200) (100:150:200))
      )
    )
    )
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE first_TRELLIS_FF_Q)
    (DELAY (ABSOLUTE
        (IOPATH CLK Q (200:250:300) (200:250:300))
    ))
    (TIMINGCHECK
      (SETUPHOLD (posedge CE) (posedge CLK) (0:0:40) (88:89:90))
    )
    )
  (CELL
    (CELLTYPE "TRELLIS_FF")
    (INSTANCE second_TRELLIS_FF_Q)
    (TIMINGCHECK
      (SETUPHOLD (posedge DI) (posedge CLK) (0:0:0) (166:173:181))
    )
    )
)
"""
