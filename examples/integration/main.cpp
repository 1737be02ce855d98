// Runs firmware.c as the processors of top.v, simulated by Verilator.

#include <cstdio>
#include <cstdlib>

#include "Vtop.h"
#include "Vtop___024root.h"
#include "firmware.h"
#include "verilated.h"

namespace {

Vtop* top;
unsigned long cycles = 0;

void clock_cycle() {
    top->clk = 1;
    top->eval();
    top->clk = 0;
    top->eval();
    cycles++;
}

void require_okay(unsigned response, const char* what, uint32_t offset) {
    if (response == 0) return;
    std::printf("%s of register 0x%03X of host %u: response %u\n", what, offset,
                unsigned{top->bus_host}, response);
    std::fflush(stdout);
    std::_Exit(1);
}

}  // namespace

uint8_t* memory[HOSTS];

uint32_t bus_read(unsigned host, uint32_t offset) {
    top->bus_host = host;
    top->bus_araddr = offset;
    top->bus_arvalid = 1;
    for (bool taken = false; !taken;) {
        top->eval();
        taken = top->bus_arready;
        clock_cycle();
    }
    top->bus_arvalid = 0;
    while (!top->bus_rvalid) clock_cycle();
    const uint32_t value = top->bus_rdata;
    require_okay(top->bus_rresp, "read", offset);
    top->bus_rready = 1;
    clock_cycle();
    top->bus_rready = 0;
    return value;
}

void bus_write(unsigned host, uint32_t offset, uint32_t value) {
    top->bus_host = host;
    top->bus_awaddr = offset;
    top->bus_wdata = value;
    top->bus_awvalid = top->bus_wvalid = 1;
    while (top->bus_awvalid || top->bus_wvalid) {
        top->eval();
        const bool address = top->bus_awready, data = top->bus_wready;
        clock_cycle();
        if (address) top->bus_awvalid = 0;
        if (data) top->bus_wvalid = 0;
    }
    while (!top->bus_bvalid) clock_cycle();
    require_okay(top->bus_bresp, "write", offset);
    top->bus_bready = 1;
    clock_cycle();
    top->bus_bready = 0;
}

void llp_attach() { top->attached = 1; }

void wait_cycles(unsigned count) {
    while (count--) clock_cycle();
}

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    Vtop model;  // it must end before Verilator's own static variables
    top = &model;
    auto* root = top->rootp;
    auto& first = root->top__DOT__hosts__BRA__0__KET____DOT__host__DOT__memory__DOT__words;
    auto& second = root->top__DOT__hosts__BRA__1__KET____DOT__host__DOT__memory__DOT__words;
    memory[INITIATOR] = reinterpret_cast<uint8_t*>(&first[0]);
    memory[RESPONDER] = reinterpret_cast<uint8_t*>(&second[0]);
    top->rst = 1;
    wait_cycles(4);
    top->rst = 0;
    const int status = firmware();
    std::printf("%lu cycles\n", cycles);
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
