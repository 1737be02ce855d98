// What stands behind the ports of an RNIC: sockets behind its LLP port, and host memory.
#pragma once

#include <vector>

#include "axi_port.h"
#include "llp.h"

namespace stagecoach {

using Link = SocketLlp;

inline std::vector<AxiPort> memory_ports(Vrnic& model) { return {AXI_PORT(model, m_axi)}; }

}  // namespace stagecoach
