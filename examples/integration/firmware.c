/* Drives two devices without any library: a QP in each, one RDMA Write, one RDMA Read.
 *
 * It runs on little-endian processors that share their memory with their device: what follows
 * `host = ...` would be the program of that host. */

#include "firmware.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "stagecoach_entries.h"
#include "stagecoach_registers.h"

/* Whose registers and memory are meant. */
static unsigned host;

#define READ(name) bus_read(host, offsetof(rnic_t, name))
#define WRITE(name, value) bus_write(host, offsetof(rnic_t, name), (value))

/* Where things are in the memory of a host, and how much of it is moved. */
enum {
    EVENT_RING = 0x0000,
    COMPLETION_RING = 0x1000,
    SEND_RING = 0x2000,
    RECEIVE_RING = 0x4000,
    SOURCE = 0x6003, /* any alignment will do */
    TARGET = 0x8005,
    SINK = 0xA000,
    OCTETS = 5000
};
enum { RING_LOG2 = 4, DOMAIN_NUMBER = 1, EMSS_OCTETS = 1460, POLLS = 100000 };

/* Bits 8 and up of an STag choose its place in the table; all 32 bits are compared. Programs draw
 * them at random: who knows an STag may use it. */
enum { SOURCE_STAG = 0x5A17C000, TARGET_STAG = 0x2B94E101, SINK_STAG = 0x7D33A202 };

static int command(enum stagecoach_command opcode) {
    WRITE(COMMAND, opcode);
    while (READ(COMMAND_STATUS) & RNIC__COMMAND_STATUS__BUSY_bm) {
    }
    return READ(COMMAND_STATUS) & RNIC__COMMAND_STATUS__INVALID_bm ? -1 : 0;
}

static int enable_ring(unsigned number, uint32_t address) {
    memset(memory[host] + address, 0, sizeof(struct stagecoach_completion_entry) << RING_LOG2);
    WRITE(CQ_NUMBER, number);
    WRITE(CQ_BASE_LOW, address);
    WRITE(CQ_BASE_HIGH, 0);
    WRITE(CQ_SIZE, RING_LOG2);
    return command(STAGECOACH_COMMAND_CQ_ENABLE);
}

static int create_qp(void) {
    WRITE(QP_NUMBER, 0);
    WRITE(QP_PD, DOMAIN_NUMBER);
    WRITE(QP_CQS, 0); /* CQ 0 for sends and receives */
    WRITE(QP_SEND_BASE_LOW, SEND_RING);
    WRITE(QP_SEND_BASE_HIGH, 0);
    WRITE(QP_RECEIVE_BASE_LOW, RECEIVE_RING);
    WRITE(QP_RECEIVE_BASE_HIGH, 0);
    WRITE(QP_RINGS, RING_LOG2 << RNIC__QP_RINGS__SEND_LOG2_bp |
                        RING_LOG2 << RNIC__QP_RINGS__RECEIVE_LOG2_bp);
    return command(STAGECOACH_COMMAND_QP_CREATE);
}

/* What the two ends would have agreed on in MPA startup. */
static int connect_qp(void) {
    WRITE(QP_NUMBER, 0);
    WRITE(QP_READS, 4 << RNIC__QP_READS__ORD_bp | 4 << RNIC__QP_READS__IRD_bp);
    WRITE(QP_EMSS, EMSS_OCTETS);
    WRITE(QP_MODE,
          RNIC__QP_MODE__CRC_bm | (host == INITIATOR ? RNIC__QP_MODE__INITIATOR_bm : 0u));
    return command(STAGECOACH_COMMAND_QP_CONNECT);
}

/* Tagged Offsets are zero-based here: the first octet of a region has offset 0. */
static int register_memory(uint32_t stag, uint32_t address, unsigned rights) {
    WRITE(STAG_VALUE, stag);
    WRITE(STAG_ACCESS, DOMAIN_NUMBER << RNIC__STAG_ACCESS__PD_bp |
                           rights << RNIC__STAG_ACCESS__RIGHTS_bp);
    WRITE(STAG_QP, 0);
    WRITE(STAG_BASE_LOW, 0);
    WRITE(STAG_BASE_HIGH, 0);
    WRITE(STAG_LENGTH_LOW, OCTETS);
    WRITE(STAG_LENGTH_HIGH, 0);
    WRITE(STAG_ADDRESS_LOW, address);
    WRITE(STAG_ADDRESS_HIGH, 0);
    return command(STAGECOACH_COMMAND_STAG_WRITE);
}

/* Posts one work request, which moves OCTETS between a region of this host and TARGET. */
static void post(unsigned number, enum stagecoach_send_opcode opcode, uint32_t local_stag) {
    struct stagecoach_send_entry entry = {0};
    entry.opcode = (uint8_t)opcode;
    entry.flags = STAGECOACH_SEND_FLAGS_SIGNALED;
    entry.element_count = 1;
    entry.length = OCTETS;
    entry.remote_stag = TARGET_STAG;
    entry.elements[0].length = OCTETS;
    entry.elements[0].stag = local_stag;
    memcpy(memory[host] + SEND_RING + number * STAGECOACH_SEND_UNIT_OCTETS, &entry,
           STAGECOACH_SEND_UNIT_OCTETS); /* one element: one unit */
    WRITE(SEND_DOORBELL, 0u << RNIC__SEND_DOORBELL__QP_bp |
                             (number + 1) << RNIC__SEND_DOORBELL__PRODUCER_bp);
}

/* Waits for a completion; returns its opcode, or -1. */
static int wait_completion(unsigned number) {
    const size_t size = sizeof(struct stagecoach_completion_entry);
    struct stagecoach_completion_entry entry;
    for (unsigned poll = 0; poll < POLLS; poll++) {
        memcpy(&entry, memory[host] + COMPLETION_RING + number * size, size);
        if (entry.phase & 1)
            return entry.qp == 0 && entry.index == number ? entry.opcode : -1;
        wait_cycles(16);
    }
    WRITE(QP_NUMBER, 0);
    printf("no completion; QP_STATE 0x%08X\n", (unsigned)READ(QP_STATE));
    return -1;
}

#define TRY(what)                          \
    do {                                   \
        if ((what) < 0) {                  \
            printf("failed: %s\n", #what); \
            return -1;                     \
        }                                  \
    } while (0)

static int bring_up(void) {
    if (READ(ID) != RNIC__ID__MAGIC_reset) {
        printf("host %u has no RNIC: ID 0x%08X\n", host, (unsigned)READ(ID));
        return -1;
    }
    const unsigned event_ring = READ(QUEUES) >> RNIC__QUEUES__CQS_bp;
    TRY(enable_ring(event_ring, EVENT_RING));
    TRY(enable_ring(0, COMPLETION_RING));
    TRY(create_qp());
    return 0;
}

int firmware(void) {
    host = RESPONDER;
    TRY(bring_up());
    TRY(register_memory(TARGET_STAG, TARGET,
                        STAGECOACH_RIGHTS_REMOTE_READ | STAGECOACH_RIGHTS_REMOTE_WRITE));
    TRY(connect_qp());

    host = INITIATOR;
    TRY(bring_up());
    TRY(register_memory(SOURCE_STAG, SOURCE, STAGECOACH_RIGHTS_LOCAL_READ));
    TRY(register_memory(SINK_STAG, SINK,
                        STAGECOACH_RIGHTS_LOCAL_WRITE | STAGECOACH_RIGHTS_REMOTE_WRITE));
    TRY(connect_qp());
    uint8_t *source = memory[host] + SOURCE;
    for (unsigned octet = 0; octet < OCTETS; octet++) source[octet] = (uint8_t)(octet * 7);
    llp_attach();

    post(0, STAGECOACH_SEND_OPCODE_RDMA_WRITE, SOURCE_STAG);
    post(1, STAGECOACH_SEND_OPCODE_RDMA_READ, SINK_STAG);
    if (wait_completion(0) != STAGECOACH_COMPLETION_OPCODE_RDMA_WRITE) return -1;
    if (wait_completion(1) != STAGECOACH_COMPLETION_OPCODE_RDMA_READ) return -1;
    if (memcmp(source, memory[RESPONDER] + TARGET, OCTETS)) {
        printf("the bytes at TARGET are wrong\n");
        return -1;
    }
    if (memcmp(source, memory[INITIATOR] + SINK, OCTETS)) {
        printf("the bytes at SINK are wrong\n");
        return -1;
    }
    printf("%u bytes written to the other host and read back\n", (unsigned)OCTETS);
    return 0;
}
