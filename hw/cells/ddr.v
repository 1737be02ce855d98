// I/O cells of an ECP5 with two bits per cycle. Their delays are not modelled.

// Both bits come at the rising edge after the second one.
module IDDRX1F(input D, SCLK, RST, output reg Q0, Q1);
    parameter GSR = "ENABLED";
    reg first, second;
    always @(posedge SCLK) begin
        first <= D;
        Q0 <= RST ? 1'b0 : first;
        Q1 <= RST ? 1'b0 : second;
    end
    always @(negedge SCLK) second <= D;
endmodule

// The first bit is sent while the clock is high, the second while it is low.
module ODDRX1F(input D0, D1, SCLK, RST, output Q);
    parameter GSR = "ENABLED";
    reg first, second;
    always @(posedge SCLK) begin
        first <= RST ? 1'b0 : D0;
        second <= RST ? 1'b0 : D1;
    end
    assign Q = SCLK ? first : second;
endmodule

module DELAYG(input A, output Z);
    parameter DEL_MODE = "USER_DEFINED";
    parameter DEL_VALUE = 0;
    assign Z = A;
endmodule

// A flip-flop that is set while PD is high, at once.
module FD1S3BX(input D, CK, PD, output reg Q);
    parameter GSR = "ENABLED";
    always @(posedge CK or posedge PD)
        if (PD) Q <= 1'b1;
        else Q <= D;
endmodule
