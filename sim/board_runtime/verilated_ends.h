// What a simulation does with the ends that Verilog may ask for.
#pragma once

#include <stdexcept>
#include <string>

#include "verilated.h"

void vl_finish(const char* file, int line, const char*) VL_MT_UNSAFE {
    throw std::runtime_error(std::string("$finish at ") + file + ":" + std::to_string(line));
}
void vl_stop(const char* file, int line, const char*) VL_MT_UNSAFE {
    throw std::runtime_error(std::string("$stop at ") + file + ":" + std::to_string(line));
}
void vl_fatal(const char* file, int line, const char*, const char* message) VL_MT_UNSAFE {
    throw std::runtime_error(std::string(message) + " (" + file + ":" + std::to_string(line) + ")");
}
