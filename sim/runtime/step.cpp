// One octet from each device says that it has come to the next place to wait.
#include "step.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace stagecoach {

Step::~Step() { ::close(descriptor_); }

Step::Result Step::meet() {
    if (!told_ && tell() == Result::kGone) return Result::kGone;
    while (true) {
        std::uint8_t octet;
        const ssize_t got = ::recv(descriptor_, &octet, 1, MSG_DONTWAIT);
        if (got == 1) {
            told_ = false;
            return Result::kMet;
        }
        if (got == 0) return Result::kGone;
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return Result::kGone;
        pollfd watched[2] = {{descriptor_, POLLIN, 0}, {wake_, POLLIN, 0}};
        if (::poll(watched, 2, -1) < 0) continue;
        if (watched[1].revents) return Result::kWoken;
    }
}

// At most two octets are ever on their way, so there is always room for one.
Step::Result Step::tell() {
    const std::uint8_t octet = 0;
    while (::send(descriptor_, &octet, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
        if (errno != EINTR) return Result::kGone;
    }
    told_ = true;
    return Result::kMet;
}

}  // namespace stagecoach
