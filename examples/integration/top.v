// A design with a Stagecoach RNIC in it: memory at its AXI port, connections 0 and 1 joined.
//
// A processor would be the master of `bus_*` and share the memory; here the test bench is that
// processor (main.cpp, firmware.c).

module top (
    input wire clk,
    input wire rst,
    // Registers, AXI4-Lite
    input wire [11:0] bus_awaddr,
    input wire bus_awvalid,
    output wire bus_awready,
    input wire [31:0] bus_wdata,
    input wire bus_wvalid,
    output wire bus_wready,
    output wire [1:0] bus_bresp,
    output wire bus_bvalid,
    input wire bus_bready,
    input wire [11:0] bus_araddr,
    input wire bus_arvalid,
    output wire bus_arready,
    output wire [31:0] bus_rdata,
    output wire [1:0] bus_rresp,
    output wire bus_rvalid,
    input wire bus_rready,
    // Both QPs are connected: octets may flow
    input wire attached,
    output wire irq
);
    wire [63:0] awaddr, wdata, araddr, rdata;
    wire [7:0] awlen, wstrb, arlen;
    wire [2:0] awsize, arsize;
    wire [1:0] awburst, arburst, bresp, rresp;
    wire awid, awvalid, awready, wlast, wvalid, wready, bid, bvalid, bready;
    wire arid, arvalid, arready, rid, rlast, rvalid, rready;

    wire tx_valid, tx_ready, tx_first, tx_last, tx_close;
    wire [1:0] tx_connection;
    wire [63:0] tx_data;
    wire [3:0] tx_octets;
    wire rx_request_valid, rx_request_ready, rx_valid, rx_ready;
    wire [1:0] rx_request_connection;
    wire [31:0] rx_request_position;
    wire [16:0] rx_request_octets;
    wire [63:0] rx_data;
    wire rx_release_valid, rx_release_ready;
    wire [1:0] rx_release_connection;
    wire [31:0] rx_release_position;
    wire event_valid, event_ready;
    wire [1:0] event_connection, event_kind;
    wire [31:0] event_value;

    stagecoach_rnic rnic (
        .clk(clk), .rst(rst), .irq(irq),
        .s_axi__awaddr(bus_awaddr), .s_axi__awprot(3'd0),
        .s_axi__awvalid(bus_awvalid), .s_axi__awready(bus_awready),
        .s_axi__wdata(bus_wdata), .s_axi__wstrb(4'hF),
        .s_axi__wvalid(bus_wvalid), .s_axi__wready(bus_wready),
        .s_axi__bresp(bus_bresp), .s_axi__bvalid(bus_bvalid), .s_axi__bready(bus_bready),
        .s_axi__araddr(bus_araddr), .s_axi__arprot(3'd0),
        .s_axi__arvalid(bus_arvalid), .s_axi__arready(bus_arready),
        .s_axi__rdata(bus_rdata), .s_axi__rresp(bus_rresp),
        .s_axi__rvalid(bus_rvalid), .s_axi__rready(bus_rready),

        .m_axi__awaddr(awaddr), .m_axi__awlen(awlen), .m_axi__awsize(awsize),
        .m_axi__awburst(awburst), .m_axi__awid(awid),
        .m_axi__awvalid(awvalid), .m_axi__awready(awready),
        .m_axi__wdata(wdata), .m_axi__wstrb(wstrb), .m_axi__wlast(wlast),
        .m_axi__wvalid(wvalid), .m_axi__wready(wready),
        .m_axi__bid(bid), .m_axi__bresp(bresp), .m_axi__bvalid(bvalid), .m_axi__bready(bready),
        .m_axi__araddr(araddr), .m_axi__arlen(arlen), .m_axi__arsize(arsize),
        .m_axi__arburst(arburst), .m_axi__arid(arid),
        .m_axi__arvalid(arvalid), .m_axi__arready(arready),
        .m_axi__rid(rid), .m_axi__rdata(rdata), .m_axi__rresp(rresp), .m_axi__rlast(rlast),
        .m_axi__rvalid(rvalid), .m_axi__rready(rready),

        .llp__tx_valid(tx_valid), .llp__tx_ready(tx_ready),
        .llp__tx_connection(tx_connection), .llp__tx_data(tx_data), .llp__tx_octets(tx_octets),
        .llp__tx_first(tx_first), .llp__tx_last(tx_last), .llp__tx_close(tx_close),
        .llp__rx_request_valid(rx_request_valid), .llp__rx_request_ready(rx_request_ready),
        .llp__rx_request_connection(rx_request_connection),
        .llp__rx_request_position(rx_request_position),
        .llp__rx_request_octets(rx_request_octets),
        .llp__rx_valid(rx_valid), .llp__rx_ready(rx_ready), .llp__rx_data(rx_data),
        .llp__rx_release_valid(rx_release_valid), .llp__rx_release_ready(rx_release_ready),
        .llp__rx_release_connection(rx_release_connection),
        .llp__rx_release_position(rx_release_position),
        .llp__event_valid(event_valid), .llp__event_ready(event_ready),
        .llp__event_connection(event_connection), .llp__event_kind(event_kind),
        .llp__event_value(event_value)
    );

    memory memory (
        .clk(clk), .rst(rst),
        .awaddr(awaddr), .awlen(awlen), .awsize(awsize), .awburst(awburst), .awid(awid),
        .awvalid(awvalid), .awready(awready),
        .wdata(wdata), .wstrb(wstrb), .wlast(wlast), .wvalid(wvalid), .wready(wready),
        .bid(bid), .bresp(bresp), .bvalid(bvalid), .bready(bready),
        .araddr(araddr), .arlen(arlen), .arsize(arsize), .arburst(arburst), .arid(arid),
        .arvalid(arvalid), .arready(arready),
        .rid(rid), .rdata(rdata), .rresp(rresp), .rlast(rlast), .rvalid(rvalid), .rready(rready)
    );

    llp_loopback llp (
        .clk(clk), .rst(rst), .attached(attached),
        .tx_valid(tx_valid), .tx_ready(tx_ready), .tx_connection(tx_connection),
        .tx_data(tx_data), .tx_octets(tx_octets),
        .tx_first(tx_first), .tx_last(tx_last), .tx_close(tx_close),
        .rx_request_valid(rx_request_valid), .rx_request_ready(rx_request_ready),
        .rx_request_connection(rx_request_connection),
        .rx_request_position(rx_request_position), .rx_request_octets(rx_request_octets),
        .rx_valid(rx_valid), .rx_ready(rx_ready), .rx_data(rx_data),
        .rx_release_valid(rx_release_valid), .rx_release_ready(rx_release_ready),
        .rx_release_connection(rx_release_connection),
        .rx_release_position(rx_release_position),
        .event_valid(event_valid), .event_ready(event_ready),
        .event_connection(event_connection), .event_kind(event_kind), .event_value(event_value)
    );
endmodule
