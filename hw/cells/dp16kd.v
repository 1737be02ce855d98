// The block RAM of an ECP5, as Yosys uses it: port A writes, port B reads, both ports equally wide.
//
// After the description by which Yosys uses it (share/lattice/brams_16kd.txt, brams_map_16kd.v),
// not the vendor's: 1024 words of 18 bits; below 9 bits of width each ninth bit is left out. The
// address counts bits of 16, so that a width of 9, 18 or 36 leaves its low 3, 4 or 5 bits free;
// there a width of 18 or 36 has its byte enables. At 36 bits the data ports of A have the lower
// half, those of B the upper one. Without output register the word is there after one clock edge.
// A word that is written in the same cycle is undefined when it is read from the other port: it
// comes as ones. Whatever else the block can do ends the simulation.
module DP16KD (
        input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6,
        DIA5, DIA4, DIA3, DIA2, DIA1, DIA0,
        input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1,
        ADA0,
        input CEA, OCEA, CLKA, WEA, RSTA,
        input CSA2, CSA1, CSA0,
        output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6,
        DOA5, DOA4, DOA3, DOA2, DOA1, DOA0,
        input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6,
        DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
        input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1,
        ADB0,
        input CEB, OCEB, CLKB, WEB, RSTB,
        input CSB2, CSB1, CSB0,
        output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6,
        DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
    parameter DATA_WIDTH_A = 18;
    parameter DATA_WIDTH_B = 18;
    parameter REGMODE_A = "NOREG";
    parameter REGMODE_B = "NOREG";
    parameter RESETMODE = "SYNC";
    parameter ASYNC_RESET_RELEASE = "SYNC";
    parameter CSDECODE_A = "0b000";
    parameter CSDECODE_B = "0b000";
    parameter WRITEMODE_A = "NORMAL";
    parameter WRITEMODE_B = "NORMAL";
    parameter CLKAMUX = "CLKA";
    parameter CLKBMUX = "CLKB";
    parameter GSR = "ENABLED";
    parameter INIT_DATA = "STATIC";
    parameter [319:0] INITVAL_00 = 320'h0;
    parameter [319:0] INITVAL_01 = 320'h0;
    parameter [319:0] INITVAL_02 = 320'h0;
    parameter [319:0] INITVAL_03 = 320'h0;
    parameter [319:0] INITVAL_04 = 320'h0;
    parameter [319:0] INITVAL_05 = 320'h0;
    parameter [319:0] INITVAL_06 = 320'h0;
    parameter [319:0] INITVAL_07 = 320'h0;
    parameter [319:0] INITVAL_08 = 320'h0;
    parameter [319:0] INITVAL_09 = 320'h0;
    parameter [319:0] INITVAL_0A = 320'h0;
    parameter [319:0] INITVAL_0B = 320'h0;
    parameter [319:0] INITVAL_0C = 320'h0;
    parameter [319:0] INITVAL_0D = 320'h0;
    parameter [319:0] INITVAL_0E = 320'h0;
    parameter [319:0] INITVAL_0F = 320'h0;
    parameter [319:0] INITVAL_10 = 320'h0;
    parameter [319:0] INITVAL_11 = 320'h0;
    parameter [319:0] INITVAL_12 = 320'h0;
    parameter [319:0] INITVAL_13 = 320'h0;
    parameter [319:0] INITVAL_14 = 320'h0;
    parameter [319:0] INITVAL_15 = 320'h0;
    parameter [319:0] INITVAL_16 = 320'h0;
    parameter [319:0] INITVAL_17 = 320'h0;
    parameter [319:0] INITVAL_18 = 320'h0;
    parameter [319:0] INITVAL_19 = 320'h0;
    parameter [319:0] INITVAL_1A = 320'h0;
    parameter [319:0] INITVAL_1B = 320'h0;
    parameter [319:0] INITVAL_1C = 320'h0;
    parameter [319:0] INITVAL_1D = 320'h0;
    parameter [319:0] INITVAL_1E = 320'h0;
    parameter [319:0] INITVAL_1F = 320'h0;
    parameter [319:0] INITVAL_20 = 320'h0;
    parameter [319:0] INITVAL_21 = 320'h0;
    parameter [319:0] INITVAL_22 = 320'h0;
    parameter [319:0] INITVAL_23 = 320'h0;
    parameter [319:0] INITVAL_24 = 320'h0;
    parameter [319:0] INITVAL_25 = 320'h0;
    parameter [319:0] INITVAL_26 = 320'h0;
    parameter [319:0] INITVAL_27 = 320'h0;
    parameter [319:0] INITVAL_28 = 320'h0;
    parameter [319:0] INITVAL_29 = 320'h0;
    parameter [319:0] INITVAL_2A = 320'h0;
    parameter [319:0] INITVAL_2B = 320'h0;
    parameter [319:0] INITVAL_2C = 320'h0;
    parameter [319:0] INITVAL_2D = 320'h0;
    parameter [319:0] INITVAL_2E = 320'h0;
    parameter [319:0] INITVAL_2F = 320'h0;
    parameter [319:0] INITVAL_30 = 320'h0;
    parameter [319:0] INITVAL_31 = 320'h0;
    parameter [319:0] INITVAL_32 = 320'h0;
    parameter [319:0] INITVAL_33 = 320'h0;
    parameter [319:0] INITVAL_34 = 320'h0;
    parameter [319:0] INITVAL_35 = 320'h0;
    parameter [319:0] INITVAL_36 = 320'h0;
    parameter [319:0] INITVAL_37 = 320'h0;
    parameter [319:0] INITVAL_38 = 320'h0;
    parameter [319:0] INITVAL_39 = 320'h0;
    parameter [319:0] INITVAL_3A = 320'h0;
    parameter [319:0] INITVAL_3B = 320'h0;
    parameter [319:0] INITVAL_3C = 320'h0;
    parameter [319:0] INITVAL_3D = 320'h0;
    parameter [319:0] INITVAL_3E = 320'h0;
    parameter [319:0] INITVAL_3F = 320'h0;
    // Each word has 20 bits here.
    localparam [20479:0] CONTENT = {
        INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A,
        INITVAL_39, INITVAL_38, INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34,
        INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E,
        INITVAL_2D, INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28,
        INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22,
        INITVAL_21, INITVAL_20, INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C,
        INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17, INITVAL_16,
        INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10,
        INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C, INITVAL_0B, INITVAL_0A,
        INITVAL_09, INITVAL_08, INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04,
        INITVAL_03, INITVAL_02, INITVAL_01, INITVAL_00
    };
    localparam WIDTH = DATA_WIDTH_A;
    localparam WORDS = WIDTH == 36 ? 2 : 1;

    generate
        if (DATA_WIDTH_A != DATA_WIDTH_B) $error("DP16KD: ports of different width");
        if (WIDTH != 1 && WIDTH != 2 && WIDTH != 4 && WIDTH != 9 && WIDTH != 18 && WIDTH != 36)
            $error("DP16KD: width %0d; allowed: 1, 2, 4, 9, 18, 36", WIDTH);
        if (REGMODE_A != "NOREG" || REGMODE_B != "NOREG") $error("DP16KD: output registers");
        if (CSDECODE_A != "0b000" || CSDECODE_B != "0b000") $error("DP16KD: chip selects");
        if (CLKAMUX != "CLKA" || CLKBMUX != "CLKB") $error("DP16KD: inverted clocks");
    endgenerate

    wire [13:0] write_address = {
        ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1,
        ADA0
    };
    wire [13:0] read_address = {
        ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1,
        ADB0
    };
    wire [17:0] lower = {
        DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6,
        DIA5, DIA4, DIA3, DIA2, DIA1, DIA0
    };
    wire [17:0] upper = {
        DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6,
        DIB5, DIB4, DIB3, DIB2, DIB1, DIB0
    };
    reg [17:0] words [0:1023];
    reg [35:0] read_data;
    integer number;
    initial begin
        for (number = 0; number < 1024; number = number + 1)
            words[number] = CONTENT[20 * number +: 18];
        read_data = 0;
    end

    // Where in a word of 18 bits an access of less than 36 bits begins, and its bits.
    function [4:0] offset(input [13:0] address);
        case (WIDTH)
            1: offset = {1'b0, address[3:0]} + {4'h0, address[3]};
            2: offset = {1'b0, address[3:1], 1'b0} + {4'h0, address[3]};
            4: offset = {1'b0, address[3:2], 2'b0} + {4'h0, address[3]};
            9: offset = address[3] ? 5'd9 : 5'd0;
            default: offset = 5'd0;
        endcase
    endfunction
    function [17:0] part(input [13:0] address);
        case (WIDTH)
            1: part = 18'h1 << offset(address);
            2: part = 18'h3 << offset(address);
            4: part = 18'hf << offset(address);
            9: part = 18'h1ff << offset(address);
            default: part = 18'h3ffff;
        endcase
    endfunction

    wire writes = CEA & WEA & ~(CSA2 | CSA1 | CSA0);
    wire reads = CEB & ~(CSB2 | CSB1 | CSB0);
    wire [17:0] enabled =
        WIDTH >= 18 ? {{9{write_address[1]}}, {9{write_address[0]}}} : part(write_address);
    wire [17:0] enabled_above = {{9{write_address[3]}}, {9{write_address[2]}}};
    wire [9:0] write_word = WIDTH == 36 ? {write_address[13:5], 1'b0} : write_address[13:4];
    wire [9:0] read_word = WIDTH == 36 ? {read_address[13:5], 1'b0} : read_address[13:4];
    wire [17:0] collision = writes && write_word == read_word ? enabled : 18'h0;
    wire [17:0] collision_above = writes && write_word == read_word ? enabled_above : 18'h0;

    always @(posedge CLKA)
        if (writes) begin
            words[write_word] <=
                (words[write_word] & ~enabled) | (lower << offset(write_address) & enabled);
            if (WIDTH == 36)
                words[write_word | 10'h1] <=
                    (words[write_word | 10'h1] & ~enabled_above) | (upper & enabled_above);
        end
    always @(posedge CLKB) begin
        if (WEB === 1'b1 || RSTA === 1'b1 || RSTB === 1'b1) begin
            $display("DP16KD: a write of port B, or a reset");
            $fatal;
        end
        if (reads) begin
            read_data[17:0] <=
                ((words[read_word] | collision) & part(read_address)) >> offset(read_address);
            read_data[35:18] <= words[read_word | 10'h1] | collision_above;
        end
    end
    // Port A has an output of its own only below 36 bits, where nothing reads it.
    assign {
        DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6,
        DOB5, DOB4, DOB3, DOB2, DOB1, DOB0, DOA17, DOA16, DOA15, DOA14, DOA13, DOA12,
        DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0
    } = WIDTH == 36 ? read_data : {read_data[17:0], 18'h0};
endmodule
