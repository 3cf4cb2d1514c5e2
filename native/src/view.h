/* What the container sees of a card. See view.c. */
#ifndef SUBAK_VIEW_H
#define SUBAK_VIEW_H

#include <stdbool.h>
#include <stdint.h>

/* Whether this program is shown its share: it is controlled, and the card has a limit below its size. */
bool view_limited(int device, uint64_t physical);

/* The share: total is the limit, and free what is left of it and of the card. */
struct view {
    uint64_t total, free;
};
struct view view_of(int device, uint64_t physical_total, uint64_t physical_free);

/* The region may have been replaced, and programs that only use NVML have no keeper who would notice. */
void view_refresh(void);

/* Whether a process belongs to this container. */
bool view_ours(uint32_t pid);

#endif
