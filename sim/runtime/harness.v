// The device with registered inputs.
//
// The runtime puts the inputs of the next cycle on these ports before the clock rises. They reach the
// device with the edge, together with its own new state, so one evaluation settles everything. With
// inputs straight on the device, all logic after them (after `rst`: almost all) would be
// evaluated twice more in every cycle.
//
// With CLOCKS the device is that of sim/resting.py, with so many clocks. The registers of each port have one
// with two active edges, too, which the runtime turns when one of them changes: what follows a quiet port
// is not evaluated.
//
// DATA_WIDTH is that of the ports to host memory and to the LLP: 32, 64 or 128.
`ifdef CLOCKS
`define TURN(clock) edge clock
`else
`define TURN(clock) posedge clk
`endif

module rnic_harness #(
    parameter CONNECTION_BITS = 6,
    parameter DATA_WIDTH = 64
) (
    input clk,
`ifdef CLOCKS
    input [`CLOCKS-1:0] clocks,
    output [`CLOCKS-1:0] moves,
    input clk_rst,
    input clk_s_axi,
    input clk_m_axi,
    input clk_llp,
`endif
    input rst,
    output irq,
    input [11:0] s_axi__awaddr,
    input [2:0] s_axi__awprot,
    input s_axi__awvalid,
    input [31:0] s_axi__wdata,
    input [3:0] s_axi__wstrb,
    input s_axi__wvalid,
    input s_axi__bready,
    input [11:0] s_axi__araddr,
    input [2:0] s_axi__arprot,
    input s_axi__arvalid,
    input s_axi__rready,
    output s_axi__awready,
    output s_axi__wready,
    output [1:0] s_axi__bresp,
    output s_axi__bvalid,
    output s_axi__arready,
    output [31:0] s_axi__rdata,
    output [1:0] s_axi__rresp,
    output s_axi__rvalid,
    input m_axi__awready,
    input m_axi__wready,
    input m_axi__bid,
    input [1:0] m_axi__bresp,
    input m_axi__bvalid,
    input m_axi__arready,
    input m_axi__rid,
    input [DATA_WIDTH-1:0] m_axi__rdata,
    input [1:0] m_axi__rresp,
    input m_axi__rlast,
    input m_axi__rvalid,
    output [63:0] m_axi__awaddr,
    output [7:0] m_axi__awlen,
    output [2:0] m_axi__awsize,
    output [1:0] m_axi__awburst,
    output m_axi__awid,
    output m_axi__awvalid,
    output [DATA_WIDTH-1:0] m_axi__wdata,
    output [DATA_WIDTH/8-1:0] m_axi__wstrb,
    output m_axi__wlast,
    output m_axi__wvalid,
    output m_axi__bready,
    output [63:0] m_axi__araddr,
    output [7:0] m_axi__arlen,
    output [2:0] m_axi__arsize,
    output [1:0] m_axi__arburst,
    output m_axi__arid,
    output m_axi__arvalid,
    output m_axi__rready,
    input llp__tx_ready,
    input llp__rx_request_ready,
    input llp__rx_valid,
    input [DATA_WIDTH-1:0] llp__rx_data,
    input llp__rx_release_ready,
    input llp__event_valid,
    input [CONNECTION_BITS-1:0] llp__event_connection,
    input [1:0] llp__event_kind,
    input [31:0] llp__event_value,
    output llp__tx_valid,
    output [CONNECTION_BITS-1:0] llp__tx_connection,
    output [DATA_WIDTH-1:0] llp__tx_data,
    output [$clog2(DATA_WIDTH/8+1)-1:0] llp__tx_octets,
    output llp__tx_first,
    output llp__tx_last,
    output llp__tx_close,
    output llp__rx_request_valid,
    output [CONNECTION_BITS-1:0] llp__rx_request_connection,
    output [31:0] llp__rx_request_position,
    output [16:0] llp__rx_request_octets,
    output llp__rx_ready,
    output llp__rx_release_valid,
    output [CONNECTION_BITS-1:0] llp__rx_release_connection,
    output [31:0] llp__rx_release_position,
    output llp__event_ready
);
    reg rst_now;
    reg [11:0] s_axi__awaddr_now;
    reg [2:0] s_axi__awprot_now;
    reg s_axi__awvalid_now;
    reg [31:0] s_axi__wdata_now;
    reg [3:0] s_axi__wstrb_now;
    reg s_axi__wvalid_now;
    reg s_axi__bready_now;
    reg [11:0] s_axi__araddr_now;
    reg [2:0] s_axi__arprot_now;
    reg s_axi__arvalid_now;
    reg s_axi__rready_now;
    reg m_axi__awready_now;
    reg m_axi__wready_now;
    reg m_axi__bid_now;
    reg [1:0] m_axi__bresp_now;
    reg m_axi__bvalid_now;
    reg m_axi__arready_now;
    reg m_axi__rid_now;
    reg [DATA_WIDTH-1:0] m_axi__rdata_now;
    reg [1:0] m_axi__rresp_now;
    reg m_axi__rlast_now;
    reg m_axi__rvalid_now;
    reg llp__tx_ready_now;
    reg llp__rx_request_ready_now;
    reg llp__rx_valid_now;
    reg [DATA_WIDTH-1:0] llp__rx_data_now;
    reg llp__rx_release_ready_now;
    reg llp__event_valid_now;
    reg [CONNECTION_BITS-1:0] llp__event_connection_now;
    reg [1:0] llp__event_kind_now;
    reg [31:0] llp__event_value_now;
    initial rst_now = 1;
    always @(`TURN(clk_rst)) rst_now <= rst;
    always @(`TURN(clk_s_axi)) begin
        s_axi__awaddr_now <= s_axi__awaddr;
        s_axi__awprot_now <= s_axi__awprot;
        s_axi__awvalid_now <= s_axi__awvalid;
        s_axi__wdata_now <= s_axi__wdata;
        s_axi__wstrb_now <= s_axi__wstrb;
        s_axi__wvalid_now <= s_axi__wvalid;
        s_axi__bready_now <= s_axi__bready;
        s_axi__araddr_now <= s_axi__araddr;
        s_axi__arprot_now <= s_axi__arprot;
        s_axi__arvalid_now <= s_axi__arvalid;
        s_axi__rready_now <= s_axi__rready;
    end
    always @(`TURN(clk_m_axi)) begin
        m_axi__awready_now <= m_axi__awready;
        m_axi__wready_now <= m_axi__wready;
        m_axi__bid_now <= m_axi__bid;
        m_axi__bresp_now <= m_axi__bresp;
        m_axi__bvalid_now <= m_axi__bvalid;
        m_axi__arready_now <= m_axi__arready;
        m_axi__rid_now <= m_axi__rid;
        m_axi__rdata_now <= m_axi__rdata;
        m_axi__rresp_now <= m_axi__rresp;
        m_axi__rlast_now <= m_axi__rlast;
        m_axi__rvalid_now <= m_axi__rvalid;
    end
    always @(`TURN(clk_llp)) begin
        llp__tx_ready_now <= llp__tx_ready;
        llp__rx_request_ready_now <= llp__rx_request_ready;
        llp__rx_valid_now <= llp__rx_valid;
        llp__rx_data_now <= llp__rx_data;
        llp__rx_release_ready_now <= llp__rx_release_ready;
        llp__event_valid_now <= llp__event_valid;
        llp__event_connection_now <= llp__event_connection;
        llp__event_kind_now <= llp__event_kind;
        llp__event_value_now <= llp__event_value;
    end
    rnic device (
`ifdef CLOCKS
        .clk_free(clk),
        .clocks(clocks),
        .moves_all(moves),
`else
        .clk(clk),
`endif
        .irq(irq),
        .rst(rst_now),
        .s_axi__awaddr(s_axi__awaddr_now),
        .s_axi__awprot(s_axi__awprot_now),
        .s_axi__awvalid(s_axi__awvalid_now),
        .s_axi__wdata(s_axi__wdata_now),
        .s_axi__wstrb(s_axi__wstrb_now),
        .s_axi__wvalid(s_axi__wvalid_now),
        .s_axi__bready(s_axi__bready_now),
        .s_axi__araddr(s_axi__araddr_now),
        .s_axi__arprot(s_axi__arprot_now),
        .s_axi__arvalid(s_axi__arvalid_now),
        .s_axi__rready(s_axi__rready_now),
        .m_axi__awready(m_axi__awready_now),
        .m_axi__wready(m_axi__wready_now),
        .m_axi__bid(m_axi__bid_now),
        .m_axi__bresp(m_axi__bresp_now),
        .m_axi__bvalid(m_axi__bvalid_now),
        .m_axi__arready(m_axi__arready_now),
        .m_axi__rid(m_axi__rid_now),
        .m_axi__rdata(m_axi__rdata_now),
        .m_axi__rresp(m_axi__rresp_now),
        .m_axi__rlast(m_axi__rlast_now),
        .m_axi__rvalid(m_axi__rvalid_now),
        .llp__tx_ready(llp__tx_ready_now),
        .llp__rx_request_ready(llp__rx_request_ready_now),
        .llp__rx_valid(llp__rx_valid_now),
        .llp__rx_data(llp__rx_data_now),
        .llp__rx_release_ready(llp__rx_release_ready_now),
        .llp__event_valid(llp__event_valid_now),
        .llp__event_connection(llp__event_connection_now),
        .llp__event_kind(llp__event_kind_now),
        .llp__event_value(llp__event_value_now),
        .s_axi__awready(s_axi__awready),
        .s_axi__wready(s_axi__wready),
        .s_axi__bresp(s_axi__bresp),
        .s_axi__bvalid(s_axi__bvalid),
        .s_axi__arready(s_axi__arready),
        .s_axi__rdata(s_axi__rdata),
        .s_axi__rresp(s_axi__rresp),
        .s_axi__rvalid(s_axi__rvalid),
        .m_axi__awaddr(m_axi__awaddr),
        .m_axi__awlen(m_axi__awlen),
        .m_axi__awsize(m_axi__awsize),
        .m_axi__awburst(m_axi__awburst),
        .m_axi__awid(m_axi__awid),
        .m_axi__awvalid(m_axi__awvalid),
        .m_axi__wdata(m_axi__wdata),
        .m_axi__wstrb(m_axi__wstrb),
        .m_axi__wlast(m_axi__wlast),
        .m_axi__wvalid(m_axi__wvalid),
        .m_axi__bready(m_axi__bready),
        .m_axi__araddr(m_axi__araddr),
        .m_axi__arlen(m_axi__arlen),
        .m_axi__arsize(m_axi__arsize),
        .m_axi__arburst(m_axi__arburst),
        .m_axi__arid(m_axi__arid),
        .m_axi__arvalid(m_axi__arvalid),
        .m_axi__rready(m_axi__rready),
        .llp__tx_valid(llp__tx_valid),
        .llp__tx_connection(llp__tx_connection),
        .llp__tx_data(llp__tx_data),
        .llp__tx_octets(llp__tx_octets),
        .llp__tx_first(llp__tx_first),
        .llp__tx_last(llp__tx_last),
        .llp__tx_close(llp__tx_close),
        .llp__rx_request_valid(llp__rx_request_valid),
        .llp__rx_request_connection(llp__rx_request_connection),
        .llp__rx_request_position(llp__rx_request_position),
        .llp__rx_request_octets(llp__rx_request_octets),
        .llp__rx_ready(llp__rx_ready),
        .llp__rx_release_valid(llp__rx_release_valid),
        .llp__rx_release_connection(llp__rx_release_connection),
        .llp__rx_release_position(llp__rx_release_position),
        .llp__event_ready(llp__event_ready)
    );
endmodule
