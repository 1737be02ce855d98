// Clock cells of an ECP5. A simulation that counts cycles ends here: a PLL hands on its reference.

// A global net; the enable is never used.
module DCCA(input CLKI, CE, output CLKO);
    assign CLKO = CE ? CLKI : 1'b0;
endmodule

// One cycle of the board's clock is one of the core, whatever the dividers; locked after 16 cycles.
module EHXPLLL(
        input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG,
        PLLWAKESYNC, ENCLKOP,
        output CLKOP, LOCK
);
    parameter PLLRST_ENA = "DISABLED";
    parameter INTFB_WAKE = "DISABLED";
    parameter STDBY_ENABLE = "DISABLED";
    parameter DPHASE_SOURCE = "DISABLED";
    parameter OUTDIVIDER_MUXA = "DIVA";
    parameter OUTDIVIDER_MUXB = "DIVB";
    parameter OUTDIVIDER_MUXC = "DIVC";
    parameter OUTDIVIDER_MUXD = "DIVD";
    parameter FEEDBK_PATH = "CLKOP";
    parameter CLKOP_ENABLE = "ENABLED";
    parameter CLKI_DIV = 1;
    parameter CLKFB_DIV = 1;
    parameter CLKOP_DIV = 8;
    parameter CLKOP_CPHASE = 0;
    parameter CLKOP_FPHASE = 0;

    reg [4:0] cycles;
    initial cycles = 0;
    always @(posedge CLKI)
        if (~LOCK) cycles <= cycles + 1;
    assign LOCK = cycles[4];
    assign CLKOP = CLKI;
endmodule
