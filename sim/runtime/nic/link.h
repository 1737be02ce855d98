// What stands behind the ports of a NIC: a wire of Ethernet, and host memory for RNIC and engine.
#pragma once

#include <vector>

#include "axi_port.h"
#include "ethernet_port.h"

namespace stagecoach {

using Link = EthernetPort;

inline std::vector<AxiPort> memory_ports(Vrnic& model) {
    return {AXI_PORT(model, m_axi), AXI_PORT(model, t_axi)};
}

}  // namespace stagecoach
