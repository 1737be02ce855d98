// AtomicArithmetic computes what the pseudo-code does, of the operands of three cycles ago.

module properties (input clk);
    localparam [1:0] FETCH_ADD = 0, SWAP = 1, CMP_SWAP = 2;
    localparam LATENCY = 3;

    `include "rfc7306_atomics.sv"

    // The operands of every cycle are free.
    (* anyseq *) reg [1:0] any_operation;
    (* anyseq *) reg [63:0] any_original, any_data, any_mask, any_compare, any_compare_mask;

    // What a counterexample shows is kept, whatever is proved.
    (* keep *) wire [63:0] result;
    (* keep *) wire writes;
    dut dut (
        .clk(clk),
        .rst(1'b0),
        .operands({any_compare_mask, any_compare, any_mask, any_data, any_operation}),
        .original(any_original),
        .result(result),
        .writes(writes)
    );

    // The operands that the outputs belong to
    (* keep *) wire [1:0] operation;
    (* keep *) wire [63:0] original, data, mask, compare, compare_mask;
    reg [321:0] given [1:LATENCY];
    always @(posedge clk) begin
        given[1] <= {any_operation, any_original, any_data, any_mask, any_compare,
                     any_compare_mask};
        given[2] <= given[1];
        given[3] <= given[2];
    end
    assign {operation, original, data, mask, compare, compare_mask} = given[LATENCY];

    // Cycles since the start; the pipeline holds nothing known before.
    reg [2:0] cycles = 0;
    always @(posedge clk) if (cycles < LATENCY) cycles <= cycles + 1;

    (* keep *) reg [63:0] expected;
    always @* begin
        case (operation)
            FETCH_ADD: expected = fetch_add(original, data, mask);
            SWAP: expected = swap(data);
            CMP_SWAP: expected = cmp_swap(original, data, mask, compare, compare_mask);
            default: expected = original;
        endcase
    end
    wire matches = ((compare ^ original) & compare_mask) == 0;
    // What the word holds after the operation
    wire [63:0] word = writes ? result : original;

    always @* if (cycles == LATENCY) begin
        `ifdef CHECK_FETCH_ADD
        if (operation == FETCH_ADD) assert (word == expected);
        `endif
        `ifdef CHECK_SWAP
        if (operation == SWAP) assert (word == expected);
        `endif
        `ifdef CHECK_CMP_SWAP
        if (operation == CMP_SWAP) assert (word == expected);
        `endif
        `ifdef CHECK_OTHER
        if (operation > CMP_SWAP) assert (word == original);
        `endif
        `ifdef CHECK_WRITES
        // Memory is written by every operation but a CmpSwap that does not match.
        assert (writes == (operation == FETCH_ADD || operation == SWAP
                           || (operation == CMP_SWAP && matches)));
        // Guards against a proof of nothing: every operation gets here, with and without a match.
        cover (operation == FETCH_ADD && mask != 0 && result != original + data);
        cover (operation == SWAP && writes);
        cover (operation == CMP_SWAP && writes && result != original);
        cover (operation == CMP_SWAP && !writes);
        `endif
    end
endmodule
