/* Which process this is, and whether another one lives. See person.c. */
#ifndef SUBAK_PERSON_H
#define SUBAK_PERSON_H

#include <stdbool.h>
#include <stdint.h>

/* This process in one word: pid in the low half, the low 31 bits of its start time above. Never 0. */
uint64_t person_me(void);

/* Whether the process of such a word lives in this pid namespace. A zombie is dead: the kernel has its memory. */
bool person_alive(uint64_t word);

/* Whether the word has a start time; without a /proc of our own pids, or a descriptor to read it, it has not. */
bool person_dated(uint64_t word);

uint64_t person_namespace(void);   /* inode of the pid namespace; 0 if it cannot be known */
uint64_t person_nanoseconds(void); /* CLOCK_MONOTONIC */

void person_forked(void);

#endif
