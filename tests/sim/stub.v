// A module with the ports of the device that exercises the runtime around it:
//  * registers: 0x000 identity, 0x004 scratch, 0x008/0x00c source address, 0x010/0x014 destination
//    address, 0x018 octets (multiple of a beat), 0x01c write: copy, read: {errors, busy},
//    0x020 irq level, 0x024 connection whose positions start anew, 0x028 EMSS and CLOSED seen,
//    0x02c cycle counter, 0x030 write: ends the simulation, 0xffc answers with an error,
//    0xff8 never answers;
//  * copies memory beat by beat over AXI;
//  * sends what a connection receives back to it, in "FPDUs" of at most 8192 octets.
// WIDTH: bits of the ports to memory and LLP, 64 unless the text begins with another one.
`ifndef WIDTH
`define WIDTH 64
`endif
`define BEAT (`WIDTH / 8)
module rnic (
    input clk, input rst, output reg irq,
    input [11:0] s_axi__awaddr, input [2:0] s_axi__awprot, input s_axi__awvalid, output s_axi__awready,
    input [31:0] s_axi__wdata, input [3:0] s_axi__wstrb, input s_axi__wvalid, output s_axi__wready,
    output reg [1:0] s_axi__bresp, output reg s_axi__bvalid, input s_axi__bready,
    input [11:0] s_axi__araddr, input [2:0] s_axi__arprot, input s_axi__arvalid, output s_axi__arready,
    output reg [31:0] s_axi__rdata, output reg [1:0] s_axi__rresp, output reg s_axi__rvalid, input s_axi__rready,
    output [63:0] m_axi__awaddr, output [7:0] m_axi__awlen, output [2:0] m_axi__awsize, output [1:0] m_axi__awburst,
    output m_axi__awid, output reg m_axi__awvalid, input m_axi__awready,
    output reg [`WIDTH-1:0] m_axi__wdata, output [`BEAT-1:0] m_axi__wstrb, output m_axi__wlast, output reg m_axi__wvalid, input m_axi__wready,
    input m_axi__bid, input [1:0] m_axi__bresp, input m_axi__bvalid, output m_axi__bready,
    output [63:0] m_axi__araddr, output [7:0] m_axi__arlen, output [2:0] m_axi__arsize, output [1:0] m_axi__arburst,
    output m_axi__arid, output reg m_axi__arvalid, input m_axi__arready,
    input m_axi__rid, input [`WIDTH-1:0] m_axi__rdata, input [1:0] m_axi__rresp, input m_axi__rlast, input m_axi__rvalid, output m_axi__rready,
    output reg llp__tx_valid, input llp__tx_ready, output [1:0] llp__tx_connection, output reg [`WIDTH-1:0] llp__tx_data,
    output reg [$clog2(`BEAT+1)-1:0] llp__tx_octets, output reg llp__tx_first, output reg llp__tx_last, output llp__tx_close,
    output reg llp__rx_request_valid, input llp__rx_request_ready, output [1:0] llp__rx_request_connection,
    output [31:0] llp__rx_request_position, output [16:0] llp__rx_request_octets,
    input llp__rx_valid, output llp__rx_ready, input [`WIDTH-1:0] llp__rx_data,
    output reg llp__rx_release_valid, input llp__rx_release_ready, output [1:0] llp__rx_release_connection,
    output [31:0] llp__rx_release_position,
    input llp__event_valid, output llp__event_ready, input [1:0] llp__event_connection, input [1:0] llp__event_kind,
    input [31:0] llp__event_value
);
    // Registers
    reg [31:0] scratch, octets, cycles;
    reg [63:0] source, destination;
    reg [15:0] errors;
    reg busy;
    reg start, anew;
    reg [1:0] anew_connection;
    reg [15:0] emss;
    reg [3:0] closed;
    wire write = s_axi__awvalid & s_axi__wvalid & ~s_axi__bvalid & (s_axi__awaddr != 12'hff8);
    wire read = s_axi__arvalid & ~s_axi__rvalid & (s_axi__araddr != 12'hff8);
    assign s_axi__awready = write, s_axi__wready = write, s_axi__arready = read;
    always @(posedge clk) begin
        cycles <= cycles + 1;
        start <= 0;
        anew <= 0;
        if (s_axi__bready) s_axi__bvalid <= 0;
        if (s_axi__rready) s_axi__rvalid <= 0;
        if (write) begin
            s_axi__bvalid <= 1;
            s_axi__bresp <= s_axi__awaddr == 12'hffc ? 2 : 0;
            case (s_axi__awaddr)
                12'h004: scratch <= s_axi__wdata;
                12'h008: source[31:0] <= s_axi__wdata;
                12'h00c: source[63:32] <= s_axi__wdata;
                12'h010: destination[31:0] <= s_axi__wdata;
                12'h014: destination[63:32] <= s_axi__wdata;
                12'h018: octets <= s_axi__wdata;
                12'h01c: start <= 1;
                12'h020: irq <= s_axi__wdata[0];
                12'h024: begin anew <= 1; anew_connection <= s_axi__wdata[1:0]; end
                12'h030: $finish;
                default: ;
            endcase
        end
        if (read) begin
            s_axi__rvalid <= 1;
            s_axi__rresp <= s_axi__araddr == 12'hffc ? 2 : 0;
            case (s_axi__araddr)
                12'h000: s_axi__rdata <= 32'h57a6ec0a;
                12'h004: s_axi__rdata <= scratch;
                12'h01c: s_axi__rdata <= {errors, 15'b0, busy | start};
                12'h020: s_axi__rdata <= {31'b0, irq};
                12'h028: s_axi__rdata <= {12'b0, closed, emss};
                12'h02c: s_axi__rdata <= cycles;
                default: s_axi__rdata <= 0;
            endcase
        end
        if (rst) begin
            s_axi__bvalid <= 0; s_axi__rvalid <= 0; irq <= 0; cycles <= 0; scratch <= 0;
        end
    end

    // Copy: one beat at a time
    reg [1:0] copy;
    assign m_axi__araddr = source + offset, m_axi__awaddr = destination + offset;
    assign m_axi__arlen = 0, m_axi__awlen = 0, m_axi__arsize = $clog2(`BEAT), m_axi__awsize = $clog2(`BEAT);
    assign m_axi__arburst = 1, m_axi__awburst = 1, m_axi__arid = 0, m_axi__awid = 0;
    assign m_axi__wlast = 1, m_axi__wstrb = {`BEAT{1'b1}}, m_axi__bready = 1, m_axi__rready = 1;
    reg [63:0] offset;
    always @(posedge clk) begin
        if (m_axi__arready) m_axi__arvalid <= 0;
        if (m_axi__awready) m_axi__awvalid <= 0;
        if (m_axi__wready) m_axi__wvalid <= 0;
        case (copy)
            0: if (start) begin
                busy <= 1; offset <= 0; errors <= 0; m_axi__arvalid <= 1; copy <= 1;
            end
            1: if (m_axi__rvalid) begin
                m_axi__wdata <= m_axi__rdata;
                if (m_axi__rresp != 0) errors <= errors + 1;
                m_axi__awvalid <= 1; m_axi__wvalid <= 1; copy <= 2;
            end
            2: if (m_axi__bvalid) begin
                if (m_axi__bresp != 0) errors <= errors + 1;
                offset <= offset + `BEAT;
                if (offset + `BEAT >= octets) begin copy <= 0; busy <= 0; end
                else begin m_axi__arvalid <= 1; copy <= 1; end
            end
            default: copy <= 0;
        endcase
        if (rst) begin
            copy <= 0; busy <= 0; errors <= 0;
            m_axi__arvalid <= 0; m_axi__awvalid <= 0; m_axi__wvalid <= 0;
        end
    end

    // Echo
    reg [31:0] available [0:3];
    reg [31:0] window [0:3];
    reg [31:0] position [0:3];
    reg [1:0] connection;
    reg [2:0] echo;
    reg [16:0] amount, left;
    wire [31:0] waiting = (available[connection] - position[connection]) & 32'hfffffffc;
    wire [31:0] room = window[connection] - position[connection];
    assign llp__event_ready = 1;
    assign llp__rx_request_connection = connection, llp__rx_release_connection = connection;
    assign llp__tx_connection = connection;
    assign llp__tx_close = 0;
    assign llp__rx_request_position = position[connection], llp__rx_request_octets = amount;
    assign llp__rx_release_position = position[connection];
    assign llp__rx_ready = echo == 2 && (!llp__tx_valid || llp__tx_ready);
    integer i;
    always @(posedge clk) begin
        if (llp__event_valid) case (llp__event_kind)
            0: available[llp__event_connection] <= llp__event_value;
            1: window[llp__event_connection] <= llp__event_value;
            2: emss <= llp__event_value[15:0];
            3: closed[llp__event_connection] <= 1;
        endcase
        if (llp__tx_ready) llp__tx_valid <= 0;
        case (echo)
            0: if (waiting != 0 && room >= 8192) begin
                amount <= waiting > 8192 ? 8192 : waiting; llp__rx_request_valid <= 1; echo <= 1;
            end else connection <= connection + 1;
            1: if (llp__rx_request_ready) begin
                llp__rx_request_valid <= 0; left <= amount; echo <= 2;
            end
            2: if (llp__rx_valid && llp__rx_ready) begin
                llp__tx_valid <= 1; llp__tx_data <= llp__rx_data;
                llp__tx_first <= left == amount; llp__tx_last <= left <= `BEAT;
                llp__tx_octets <= left >= `BEAT ? `BEAT : left;
                if (left <= `BEAT) begin position[connection] <= position[connection] + amount; echo <= 3; end
                else left <= left - `BEAT;
            end
            3: if (!llp__tx_valid) begin llp__rx_release_valid <= 1; echo <= 4; end
            4: if (llp__rx_release_ready) begin
                llp__rx_release_valid <= 0; connection <= connection + 1; echo <= 0;
            end
            default: echo <= 0;
        endcase
        if (anew) begin
            available[anew_connection] <= 0; window[anew_connection] <= 0;
            position[anew_connection] <= 0; closed[anew_connection] <= 0;
        end
        if (rst) begin
            echo <= 0; connection <= 0; emss <= 0; closed <= 0;
            llp__tx_valid <= 0; llp__rx_request_valid <= 0; llp__rx_release_valid <= 0;
            for (i = 0; i < 4; i = i + 1) begin
                available[i] <= 0; window[i] <= 0; position[i] <= 0;
            end
        end
    end
endmodule
