// One of two hosts: a Stagecoach RNIC with a memory at its AXI port.
//
// A processor would be the master of `s_axil_*` and share the memory; here the test bench is that
// processor (main.cpp, firmware.c).

module host #(
    parameter RESPONDER = 0  // which one of the two devices it has
) (
    input wire clk,
    input wire rst,
    output wire irq,
    // Registers
    input wire [11:0] s_axil_awaddr,
    input wire s_axil_awvalid,
    output wire s_axil_awready,
    input wire [31:0] s_axil_wdata,
    input wire s_axil_wvalid,
    output wire s_axil_wready,
    output wire [1:0] s_axil_bresp,
    output wire s_axil_bvalid,
    input wire s_axil_bready,
    input wire [11:0] s_axil_araddr,
    input wire s_axil_arvalid,
    output wire s_axil_arready,
    output wire [31:0] s_axil_rdata,
    output wire [1:0] s_axil_rresp,
    output wire s_axil_rvalid,
    input wire s_axil_rready,
    // The LLP port, where a TCP engine would be
    output wire m_axis_llp_tx_tvalid,
    input wire m_axis_llp_tx_tready,
    output wire [1:0] m_axis_llp_tx_tdest,
    output wire [63:0] m_axis_llp_tx_tdata,
    output wire [7:0] m_axis_llp_tx_tkeep,
    output wire [1:0] m_axis_llp_tx_tuser,
    output wire m_axis_llp_tx_tlast,
    output wire m_axis_llp_rx_request_tvalid,
    input wire m_axis_llp_rx_request_tready,
    output wire [1:0] m_axis_llp_rx_request_tdest,
    output wire [31:0] m_axis_llp_rx_request_tdata,
    output wire [16:0] m_axis_llp_rx_request_tuser,
    input wire s_axis_llp_rx_tvalid,
    output wire s_axis_llp_rx_tready,
    input wire [63:0] s_axis_llp_rx_tdata,
    output wire m_axis_llp_rx_release_tvalid,
    input wire m_axis_llp_rx_release_tready,
    output wire [1:0] m_axis_llp_rx_release_tdest,
    output wire [31:0] m_axis_llp_rx_release_tdata,
    input wire s_axis_llp_event_tvalid,
    output wire s_axis_llp_event_tready,
    input wire [1:0] s_axis_llp_event_tdest,
    input wire [31:0] s_axis_llp_event_tdata,
    input wire [1:0] s_axis_llp_event_tuser
);
    wire [63:0] m_axi_awaddr, m_axi_wdata, m_axi_araddr, m_axi_rdata;
    wire [7:0] m_axi_awlen, m_axi_wstrb, m_axi_arlen;
    wire [2:0] m_axi_awsize, m_axi_arsize, m_axi_awprot, m_axi_arprot;
    wire [1:0] m_axi_awburst, m_axi_arburst, m_axi_bresp, m_axi_rresp;
    wire [3:0] m_axi_awcache, m_axi_arcache, m_axi_awqos, m_axi_arqos;
    wire m_axi_awlock, m_axi_awid, m_axi_awvalid, m_axi_awready;
    wire m_axi_wlast, m_axi_wvalid, m_axi_wready, m_axi_bid, m_axi_bvalid, m_axi_bready;
    wire m_axi_arlock, m_axi_arid, m_axi_arvalid, m_axi_arready;
    wire m_axi_rid, m_axi_rlast, m_axi_rvalid, m_axi_rready;
    wire [2:0] s_axil_awprot = 0, s_axil_arprot = 0;
    wire [3:0] s_axil_wstrb = 4'hF;

    // A memory without caches has no use for these.
    wire unused = &{1'b0, m_axi_awlock, m_axi_awcache, m_axi_awprot, m_axi_awqos,
        m_axi_arlock, m_axi_arcache, m_axi_arprot, m_axi_arqos};

    // Both have the same ports, whatever the prefix of their modules. `.*` joins what has one name.
    generate
        if (RESPONDER != 0) begin : device
            responder_stagecoach_rnic rnic (.*);
        end else begin : device
            initiator_stagecoach_rnic rnic (.*);
        end
    endgenerate

    memory memory (
        .clk(clk), .rst(rst),
        .awaddr(m_axi_awaddr), .awlen(m_axi_awlen), .awsize(m_axi_awsize),
        .awburst(m_axi_awburst), .awid(m_axi_awid),
        .awvalid(m_axi_awvalid), .awready(m_axi_awready),
        .wdata(m_axi_wdata), .wstrb(m_axi_wstrb), .wlast(m_axi_wlast),
        .wvalid(m_axi_wvalid), .wready(m_axi_wready),
        .bid(m_axi_bid), .bresp(m_axi_bresp), .bvalid(m_axi_bvalid), .bready(m_axi_bready),
        .araddr(m_axi_araddr), .arlen(m_axi_arlen), .arsize(m_axi_arsize),
        .arburst(m_axi_arburst), .arid(m_axi_arid),
        .arvalid(m_axi_arvalid), .arready(m_axi_arready),
        .rid(m_axi_rid), .rdata(m_axi_rdata), .rresp(m_axi_rresp), .rlast(m_axi_rlast),
        .rvalid(m_axi_rvalid), .rready(m_axi_rready)
    );
endmodule
