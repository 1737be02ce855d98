// The smallest LLP there is: what the device sends on connection 0 it receives on connection 1, and
// the other way round. A TCP engine has the same port (docs/integration.md, "The LLP port").

module llp_loopback #(
    parameter BUFFER_BITS = 12  // log2 of the words of 32 bits that one direction holds
) (
    input wire clk,
    input wire rst,
    input wire attached,
    input wire tx_valid,
    output wire tx_ready,
    input wire [1:0] tx_connection,
    input wire [63:0] tx_data,
    input wire [3:0] tx_octets,
    input wire tx_first,
    input wire tx_last,
    input wire tx_close,
    input wire rx_request_valid,
    output wire rx_request_ready,
    input wire [1:0] rx_request_connection,
    input wire [31:0] rx_request_position,
    input wire [16:0] rx_request_octets,
    output reg rx_valid,
    input wire rx_ready,
    output reg [63:0] rx_data,
    input wire rx_release_valid,
    output wire rx_release_ready,
    input wire [1:0] rx_release_connection,
    input wire [31:0] rx_release_position,
    output reg event_valid,
    input wire event_ready,
    output reg [1:0] event_connection,
    output reg [1:0] event_kind,
    output reg [31:0] event_value
);
    localparam RX_AVAILABLE = 2'd0, TX_WINDOW = 2'd1, CLOSED = 2'd3;
    // A Terminate of up to 92 octets may come behind the window, with tx_close.
    localparam [31:0] WINDOW = (4 << BUFFER_BITS) - 128;

    // What connection 0 sent, and what connection 1 sent. Positions are multiples of 4.
    reg [31:0] words [0:(2 << BUFFER_BITS) - 1];
    reg [31:0] written [0:1];

    // Only connections 0 and 1 exist; FPDUs follow each other, so tx_first says nothing new.
    wire unused = &{1'b0, tx_first, tx_connection[1], rx_release_connection[1], tx_octets[2:0],
        rx_request_connection[1]};

    // Sending: there is always room inside of the window.
    wire sender = tx_connection[0];
    wire [BUFFER_BITS-1:0] write_at = written[sender][2 +: BUFFER_BITS];
    assign tx_ready = 1;
    always @(posedge clk) begin
        if (tx_valid && tx_octets != 0) begin
            words[{sender, write_at}] <= tx_data[31:0];
            if (tx_octets[3]) words[{sender, write_at + 1'b1}] <= tx_data[63:32];
            written[sender] <= written[sender] + {28'd0, tx_octets};
        end
        if (rst) begin
            written[0] <= 0;
            written[1] <= 0;
        end
    end

    // Receiving: one request after the other; the answer is what the other connection sent.
    reg source;
    reg [31:0] position;
    reg [16:0] octets_left;
    wire [BUFFER_BITS-1:0] read_at = position[2 +: BUFFER_BITS];
    assign rx_request_ready = octets_left == 0;
    always @(posedge clk) begin
        if (rx_ready) rx_valid <= 0;
        if (rx_request_ready) begin
            if (rx_request_valid) begin
                source <= !rx_request_connection[0];
                position <= rx_request_position;
                octets_left <= rx_request_octets;
            end
        end else if (!rx_valid || rx_ready) begin
            rx_valid <= 1;
            rx_data <= {words[{source, read_at + 1'b1}], words[{source, read_at}]};
            position <= position + 8;
            octets_left <= octets_left > 8 ? octets_left - 8 : 0;
        end
        if (rst) begin
            rx_valid <= 0;
            octets_left <= 0;
        end
    end

    // Events: of each connection what is to be announced; a newer position replaces an older one.
    reg [31:0] released [0:1];
    reg [1:0] window, available, closed;
    reg was_attached;
    wire releaser = rx_release_connection[0];
    wire next = window != 0 ? !window[0] : available != 0 ? !available[0] : !closed[0];
    assign rx_release_ready = 1;
    always @(posedge clk) begin
        was_attached <= attached;
        if (event_ready) event_valid <= 0;
        if (!event_valid || event_ready) begin
            event_connection <= {1'b0, next};
            event_valid <= window != 0 || available != 0 || closed != 0;
            if (window != 0) begin
                event_kind <= TX_WINDOW;
                event_value <= released[next] + WINDOW;
                window[next] <= 0;
            end else if (available != 0) begin
                event_kind <= RX_AVAILABLE;
                event_value <= written[!next];
                available[next] <= 0;
            end else begin
                event_kind <= CLOSED;
                event_value <= 0;
                if (closed != 0) closed[next] <= 0;
            end
        end
        if (attached && !was_attached) window <= 2'b11;
        // `written` has grown when this is seen.
        if (tx_valid && tx_last) available[!sender] <= 1;
        if (tx_valid && tx_close) closed[!sender] <= 1;
        if (rx_release_valid) begin
            released[!releaser] <= rx_release_position;
            window[!releaser] <= 1;
        end
        if (rst) begin
            was_attached <= 0;
            event_valid <= 0;
            window <= 0;
            available <= 0;
            closed <= 0;
            released[0] <= 0;
            released[1] <= 0;
        end
    end
endmodule
