/* What firmware.c needs of the machine that it runs on. */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The registers, by octet offset. */
uint32_t bus_read(uint32_t offset);
void bus_write(uint32_t offset, uint32_t value);
/* Memory: what the processor finds at `memory + a`, the device finds at address `a`. */
extern uint8_t *memory;
/* The connections are in Full Operation. */
void llp_attach(void);
void wait_cycles(unsigned cycles);

int firmware(void);

#ifdef __cplusplus
}
#endif

#endif
