// Runs firmware.c as the processor of top.v, simulated by Verilator.

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
    std::printf("%s of register 0x%03X: response %u\n", what, offset, response);
    std::fflush(stdout);
    std::_Exit(1);
}

}  // namespace

uint8_t* memory;

uint32_t bus_read(uint32_t offset) {
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

void bus_write(uint32_t offset, uint32_t value) {
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
    memory = reinterpret_cast<uint8_t*>(&top->rootp->top__DOT__memory__DOT__words[0]);
    top->rst = 1;
    wait_cycles(4);
    top->rst = 0;
    const int status = firmware();
    std::printf("%lu cycles\n", cycles);
    return status;
}
