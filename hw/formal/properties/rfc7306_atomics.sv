// The pseudo-code of RFC 7306, 5.1.1 and 5.1.2, statement by statement, bit by bit.
// Swap is draft-ietf-storm-rdmap-ext-00, 5.1.2; Swap Mask is ignored there (5.2.1).

function [63:0] fetch_add(
    input [63:0] original_remote_data_value,
    input [63:0] add_data,
    input [63:0] add_mask
);
    reg [63:0] bit_location;
    reg [63:0] remote_data_value;
    reg [1:0] sum;
    reg val1, val2, carry;
    integer i;
    begin
        bit_location = 1;
        carry = 0;
        remote_data_value = 0;
        for (i = 0; i <= 63; i = i + 1) begin
            if (i != 0) bit_location = bit_location << 1;
            val1 = (original_remote_data_value & bit_location) >> i;
            val2 = (add_data & bit_location) >> i;
            sum = {1'b0, carry} + {1'b0, val1} + {1'b0, val2};
            carry = (sum & 2) >> 1;
            sum = sum & 1;
            if (sum) remote_data_value = remote_data_value | bit_location;
            carry = carry && !(add_mask & bit_location);
        end
        fetch_add = remote_data_value;
    end
endfunction

function [63:0] swap(input [63:0] swap_data);
    swap = swap_data;
endfunction

function [63:0] cmp_swap(
    input [63:0] original_remote_data_value,
    input [63:0] swap_data,
    input [63:0] swap_mask,
    input [63:0] compare_data,
    input [63:0] compare_mask
);
    if (!((compare_data ^ original_remote_data_value) & compare_mask))
        cmp_swap = (original_remote_data_value & ~swap_mask) | (swap_data & swap_mask);
    else
        cmp_swap = original_remote_data_value;
endfunction
