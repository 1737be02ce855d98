/* What firmware.c needs of the machines that it runs on. */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { INITIATOR, RESPONDER, HOSTS };

/* The registers of a host's device, by octet offset. */
uint32_t bus_read(unsigned host, uint32_t offset);
void bus_write(unsigned host, uint32_t offset, uint32_t value);
/* What the processor of a host finds at `memory[host] + a`, its device finds at address `a`. */
extern uint8_t *memory[HOSTS];
/* The connections are in Full Operation. */
void llp_attach(void);
void wait_cycles(unsigned cycles);

/* 0 if all went well. */
int firmware(void);

#ifdef __cplusplus
}
#endif

#endif
