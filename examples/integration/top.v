// A design with two Stagecoach RNICs in it, each with a memory; connection 0 of one is joined to
// connection 0 of the other.

module top (
    input wire clk,
    input wire rst,
    // Registers, AXI4-Lite, of the host that `bus_host` names: one access at a time
    input wire bus_host,
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
    output wire [1:0] irq
);
    // Of each host, in the order of their numbers
    wire awready [0:1], wready [0:1], bvalid [0:1], arready [0:1], rvalid [0:1];
    wire [1:0] bresp [0:1], rresp [0:1];
    wire [31:0] rdata [0:1];
    assign bus_awready = awready[bus_host], bus_wready = wready[bus_host];
    assign bus_bvalid = bvalid[bus_host], bus_bresp = bresp[bus_host];
    assign bus_arready = arready[bus_host], bus_rvalid = rvalid[bus_host];
    assign bus_rdata = rdata[bus_host], bus_rresp = rresp[bus_host];

    wire tx_tvalid [0:1], tx_tlast [0:1];
    wire [63:0] tx_tdata [0:1];
    wire [7:0] tx_tkeep [0:1];
    wire [1:0] tx_tuser [0:1];
    wire [31:0] granted [0:1];

    genvar n;
    generate
        for (n = 0; n < 2; n = n + 1) begin : hosts
            wire selected = bus_host == n;
            wire rx_request_tvalid, rx_request_tready, rx_tvalid, rx_tready, rx_release_tvalid;
            wire event_tvalid, event_tready;
            wire [31:0] rx_request_tdata, rx_release_tdata, event_tdata;
            wire [16:0] rx_request_tuser;
            wire [63:0] rx_tdata;
            wire [1:0] event_tuser;
            // Only connection 0 exists; FPDUs follow each other, so `first` says nothing new.
            wire [1:0] tx_tdest, rx_request_tdest, rx_release_tdest;
            wire unused = &{1'b0, tx_tdest, rx_request_tdest, rx_release_tdest, tx_tuser[n][0]};

            host #(.RESPONDER(n)) host (
                .clk(clk), .rst(rst), .irq(irq[n]),
                .s_axil_awaddr(bus_awaddr),
                .s_axil_awvalid(bus_awvalid && selected), .s_axil_awready(awready[n]),
                .s_axil_wdata(bus_wdata),
                .s_axil_wvalid(bus_wvalid && selected), .s_axil_wready(wready[n]),
                .s_axil_bresp(bresp[n]), .s_axil_bvalid(bvalid[n]),
                .s_axil_bready(bus_bready && selected),
                .s_axil_araddr(bus_araddr),
                .s_axil_arvalid(bus_arvalid && selected), .s_axil_arready(arready[n]),
                .s_axil_rdata(rdata[n]), .s_axil_rresp(rresp[n]), .s_axil_rvalid(rvalid[n]),
                .s_axil_rready(bus_rready && selected),
                .m_axis_llp_tx_tvalid(tx_tvalid[n]), .m_axis_llp_tx_tready(1'b1),
                .m_axis_llp_tx_tdest(tx_tdest), .m_axis_llp_tx_tdata(tx_tdata[n]),
                .m_axis_llp_tx_tkeep(tx_tkeep[n]), .m_axis_llp_tx_tuser(tx_tuser[n]),
                .m_axis_llp_tx_tlast(tx_tlast[n]),
                .m_axis_llp_rx_request_tvalid(rx_request_tvalid),
                .m_axis_llp_rx_request_tready(rx_request_tready),
                .m_axis_llp_rx_request_tdest(rx_request_tdest),
                .m_axis_llp_rx_request_tdata(rx_request_tdata),
                .m_axis_llp_rx_request_tuser(rx_request_tuser),
                .s_axis_llp_rx_tvalid(rx_tvalid), .s_axis_llp_rx_tready(rx_tready),
                .s_axis_llp_rx_tdata(rx_tdata),
                .m_axis_llp_rx_release_tvalid(rx_release_tvalid),
                .m_axis_llp_rx_release_tready(1'b1),
                .m_axis_llp_rx_release_tdest(rx_release_tdest),
                .m_axis_llp_rx_release_tdata(rx_release_tdata),
                .s_axis_llp_event_tvalid(event_tvalid), .s_axis_llp_event_tready(event_tready),
                .s_axis_llp_event_tdest(2'd0), .s_axis_llp_event_tdata(event_tdata),
                .s_axis_llp_event_tuser(event_tuser)
            );

            llp_end llp (
                .clk(clk), .rst(rst), .attached(attached),
                .tx_tvalid(tx_tvalid[1 - n]), .tx_tdata(tx_tdata[1 - n]),
                .tx_tkeep(tx_tkeep[1 - n]), .tx_tlast(tx_tlast[1 - n]),
                .tx_close(tx_tuser[1 - n][1]),
                .granted(granted[n]), .window(granted[1 - n]),
                .rx_request_tvalid(rx_request_tvalid), .rx_request_tready(rx_request_tready),
                .rx_request_tdata(rx_request_tdata), .rx_request_tuser(rx_request_tuser),
                .rx_tvalid(rx_tvalid), .rx_tready(rx_tready), .rx_tdata(rx_tdata),
                .rx_release_tvalid(rx_release_tvalid), .rx_release_tdata(rx_release_tdata),
                .event_tvalid(event_tvalid), .event_tready(event_tready),
                .event_tdata(event_tdata), .event_tuser(event_tuser)
            );
        end
    endgenerate
endmodule
