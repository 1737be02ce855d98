// One end of the smallest LLP there is: connection 0 of its device is joined to connection 0 of the
// other one. It keeps what the other device sent until its own has released it. A TCP engine has
// the same ports (docs/integration.md, "The LLP port").

module llp_end #(
    parameter BUFFER_BITS = 12  // log2 of the words of 32 bits that it holds
) (
    input wire clk,
    input wire rst,
    input wire attached,
    // What the other device sends
    input wire tx_tvalid,
    input wire [63:0] tx_tdata,
    input wire [7:0] tx_tkeep,
    input wire tx_tlast,
    input wire tx_close,
    // Up to where the other device may send; and up to where this one may
    output reg [31:0] granted,
    input wire [31:0] window,
    // The device
    input wire rx_request_tvalid,
    output wire rx_request_tready,
    input wire [31:0] rx_request_tdata,
    input wire [16:0] rx_request_tuser,
    output reg rx_tvalid,
    input wire rx_tready,
    output reg [63:0] rx_tdata,
    input wire rx_release_tvalid,
    input wire [31:0] rx_release_tdata,
    output reg event_tvalid,
    input wire event_tready,
    output reg [31:0] event_tdata,
    output reg [1:0] event_tuser
);
    `include "stagecoach_llp.vh"
    // A Terminate of up to 92 octets may come after the window, with `close`.
    localparam [31:0] ROOM = (4 << BUFFER_BITS) - 128;

    // What was sent. Positions are multiples of 4, so a beat has 0, 4 or 8 octets.
    reg [31:0] words [0:(1 << BUFFER_BITS) - 1];
    reg [31:0] written;
    wire [BUFFER_BITS-1:0] write_at = written[2 +: BUFFER_BITS];
    wire unused = &{1'b0, tx_tkeep[7:5], tx_tkeep[3:1]};

    always @(posedge clk) begin
        if (tx_tvalid && tx_tkeep[0]) begin
            words[write_at] <= tx_tdata[31:0];
            if (tx_tkeep[4]) words[write_at + 1'b1] <= tx_tdata[63:32];
            written <= written + (tx_tkeep[4] ? 8 : 4);
        end
        if (rst) written <= 0;
    end

    // Requests: one after the other.
    reg [31:0] position;
    reg [16:0] octets_left;
    wire [BUFFER_BITS-1:0] read_at = position[2 +: BUFFER_BITS];
    assign rx_request_tready = octets_left == 0;

    always @(posedge clk) begin
        if (rx_tready) rx_tvalid <= 0;
        if (rx_request_tready) begin
            if (rx_request_tvalid) begin
                position <= rx_request_tdata;
                octets_left <= rx_request_tuser;
            end
        end else if (!rx_tvalid || rx_tready) begin
            rx_tvalid <= 1;
            rx_tdata <= {words[read_at + 1'b1], words[read_at]};
            position <= position + 8;
            octets_left <= octets_left > 8 ? octets_left - 8 : 0;
        end
        if (rst) begin
            rx_tvalid <= 0;
            octets_left <= 0;
        end
    end

    always @(posedge clk) begin
        if (rx_release_tvalid) granted <= rx_release_tdata + ROOM;
        if (rst) granted <= ROOM;
    end

    // Events: a newer position replaces an older one that was not told yet.
    reg [31:0] window_told;
    reg was_attached, available, closed;

    always @(posedge clk) begin
        was_attached <= attached;
        if (event_tready) event_tvalid <= 0;
        if (was_attached && (!event_tvalid || event_tready)) begin
            event_tvalid <= window_told != window || available || closed;
            if (window_told != window) begin
                event_tuser <= LLP_TX_WINDOW;
                event_tdata <= window;
                window_told <= window;
            end else if (available) begin
                event_tuser <= LLP_RX_AVAILABLE;
                event_tdata <= written;
                available <= 0;
            end else begin
                event_tuser <= LLP_CLOSED;
                event_tdata <= 0;
                closed <= 0;
            end
        end
        // `written` has grown when this is seen.
        if (tx_tvalid && tx_tlast) available <= 1;
        if (tx_tvalid && tx_close) closed <= 1;
        if (rst) begin
            window_told <= 0;
            was_attached <= 0;
            event_tvalid <= 0;
            available <= 0;
            closed <= 0;
        end
    end
endmodule
