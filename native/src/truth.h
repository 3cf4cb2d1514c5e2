/* What the driver really holds for this process, by NVML. See truth.c. */
#ifndef SUBAK_TRUTH_H
#define SUBAK_TRUTH_H

#include <stdint.h>

/* Asks NVML for this process on this card and books what the ledger had not seen. */
void truth_reconcile(int device);

/* The same in the middle of a request: so many bytes are charged that the driver has not been asked for yet. */
void truth_reconcile_holding(int device, uint64_t held);

/* The same as the first, but waits for another thread that is at it with older figures: after something grew or went. */
void truth_reconcile_now(int device);

/* And in place of what was reserved for something that grew: until NVML's figure is there, the reservation counts. */
void truth_reconcile_instead(int device, uint64_t reserved);

/* Nanoseconds since the last answer that could be used, and since NVML was last asked. */
uint64_t truth_age(int device);
uint64_t truth_tried(int device);

/* NVML's figure for this process in bytes. */
enum truth { TRUTH_LISTED, TRUTH_NOT_LISTED, TRUTH_UNKNOWN };
enum truth truth_own(int device, uint64_t *bytes);

/* For drivers and sandboxes whose NVML does not list us: bytes in use on the whole card. UINT64_MAX if unknown. */
uint64_t truth_card(int device);

void truth_forked(void);

#endif
