// Host memory: an AXI4 slave of 64 bits that serves one read burst and one write burst at a time.
// It takes INCR bursts of whole words; an address outside of it is answered DECERR.

module memory #(
    parameter WORD_BITS = 14  // log2 of the words: 128 KiB
) (
    input wire clk,
    input wire rst,
    input wire [63:0] awaddr,
    input wire [7:0] awlen,
    input wire [2:0] awsize,
    input wire [1:0] awburst,
    input wire awid,
    input wire awvalid,
    output wire awready,
    input wire [63:0] wdata,
    input wire [7:0] wstrb,
    input wire wlast,
    input wire wvalid,
    output wire wready,
    output reg bid,
    output reg [1:0] bresp,
    output wire bvalid,
    input wire bready,
    input wire [63:0] araddr,
    input wire [7:0] arlen,
    input wire [2:0] arsize,
    input wire [1:0] arburst,
    input wire arid,
    input wire arvalid,
    output wire arready,
    output reg rid,
    output reg [63:0] rdata,
    output reg [1:0] rresp,
    output reg rlast,
    output reg rvalid,
    input wire rready
);
    localparam OKAY = 2'd0, DECERR = 2'd3;

    reg [63:0] words [0:(1 << WORD_BITS) - 1] /* verilator public_flat_rw */;

    // Of the device's bursts these are always the same.
    wire unused = &{1'b0, awlen, awsize, awburst, arsize, arburst, awaddr[2:0], araddr[2:0]};

    localparam ADDRESS = 2'd0, DATA = 2'd1, RESPONSE = 2'd2;
    reg [1:0] write_state;
    reg [60:0] write_word;
    wire write_inside = write_word[60:WORD_BITS] == 0;
    assign awready = write_state == ADDRESS;
    assign wready = write_state == DATA;
    assign bvalid = write_state == RESPONSE;
    integer lane;

    always @(posedge clk) begin
        case (write_state)
            ADDRESS: if (awvalid) begin
                write_word <= awaddr[63:3];
                bid <= awid;
                bresp <= OKAY;
                write_state <= DATA;
            end
            DATA: if (wvalid) begin
                if (!write_inside) bresp <= DECERR;
                for (lane = 0; lane < 8; lane = lane + 1)
                    if (write_inside && wstrb[lane])
                        words[write_word[WORD_BITS-1:0]][8*lane +: 8] <= wdata[8*lane +: 8];
                write_word <= write_word + 1;
                if (wlast) write_state <= RESPONSE;
            end
            default: if (bready) write_state <= ADDRESS;
        endcase
        if (rst) write_state <= ADDRESS;
    end

    reg reading;
    reg [60:0] read_word;
    reg [7:0] read_left;
    wire read_inside = read_word[60:WORD_BITS] == 0;
    assign arready = !reading;

    always @(posedge clk) begin
        if (rready) rvalid <= 0;
        if (!reading) begin
            if (arvalid) begin
                read_word <= araddr[63:3];
                read_left <= arlen;
                rid <= arid;
                reading <= 1;
            end
        end else if (!rvalid || rready) begin
            rvalid <= 1;
            rdata <= words[read_word[WORD_BITS-1:0]];
            rresp <= read_inside ? OKAY : DECERR;
            rlast <= read_left == 0;
            read_word <= read_word + 1;
            read_left <= read_left - 1;
            // The next burst begins when the last word of this one has left.
            if (read_left == 0) reading <= 0;
        end
        if (rst) begin
            reading <= 0;
            rvalid <= 0;
        end
    end
endmodule
