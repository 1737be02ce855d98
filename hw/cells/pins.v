// Pins of one direction, in place of TRELLIS_IO: Verilator takes no `inout` behind an input.
module INPUT_PIN(input B, I, T, output O);
    parameter DIR = "INPUT";
    assign O = B;
endmodule

module OUTPUT_PIN(output B, input I, T, output O);
    parameter DIR = "OUTPUT";
    // Nobody drives a line that rests: it is pulled up.
    assign B = T ? 1'b1 : I;
    assign O = B;
endmodule
