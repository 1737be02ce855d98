// The ports of an AXI4 slave on the model, whatever the model calls their group.
#pragma once

#include <utility>

#include "common.h"

// All signals of the port; SIGNAL gets the model, the group and the name of each.
#define AXI_SIGNALS(SIGNAL, model, group)                                                         \
    SIGNAL(model, group, awaddr) SIGNAL(model, group, awlen) SIGNAL(model, group, awsize)          \
    SIGNAL(model, group, awburst) SIGNAL(model, group, awid) SIGNAL(model, group, awvalid)         \
    SIGNAL(model, group, awready) SIGNAL(model, group, wdata) SIGNAL(model, group, wstrb)          \
    SIGNAL(model, group, wlast) SIGNAL(model, group, wvalid) SIGNAL(model, group, wready)          \
    SIGNAL(model, group, bid) SIGNAL(model, group, bresp) SIGNAL(model, group, bvalid)             \
    SIGNAL(model, group, bready) SIGNAL(model, group, araddr) SIGNAL(model, group, arlen)          \
    SIGNAL(model, group, arsize) SIGNAL(model, group, arburst) SIGNAL(model, group, arid)          \
    SIGNAL(model, group, arvalid) SIGNAL(model, group, arready) SIGNAL(model, group, rid)          \
    SIGNAL(model, group, rdata) SIGNAL(model, group, rresp) SIGNAL(model, group, rlast)            \
    SIGNAL(model, group, rvalid) SIGNAL(model, group, rready)

#define AXI_MEMBER(model, group, name) decltype((std::declval<model&>().PORT(group, name))) name;
#define AXI_ARGUMENT(model, group, name) model.PORT(group, name),

// The port of a model whose signals are named after a group.
#define AXI_PORT(model, group) stagecoach::AxiPort{AXI_SIGNALS(AXI_ARGUMENT, model, group)}

namespace stagecoach {

struct AxiPort {
    AXI_SIGNALS(AXI_MEMBER, Vrnic, m_axi)
};

}  // namespace stagecoach
