/*
 * The agent's word of the moment.
 *
 * The region belongs to the container, so what lifts a limit cannot stand there. It stands in a file that the agent
 * writes all the time and that the container can only read; its limits file names it (SUBAK_STATE). An agent that has
 * been silent for three seconds is dead, and its last word with it: nobody stays blocked, nobody without a limit.
 *
 * The file is read anew each time, five times a second, and not mapped: a file that is cut short is then an error and
 * not a SIGBUS, and no descriptor of ours stays in the program.
 */
#define _GNU_SOURCE
#include "state.h"

#include <fcntl.h>
#include <unistd.h>

#include "person.h"

#define SILENCE_NS 3000000000ll

bool state_named(void) { return config()->state[0]; }

static bool read_state(struct state *state) {
    int file = open(config()->state, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool whole = file >= 0 && pread(file, state, sizeof *state, 0) == sizeof *state;
    if (file >= 0) close(file);
    return whole && state->magic == STATE_MAGIC;
}

unsigned state_of(int device) {
    struct state state;
    int number = config()->agents_number[device];
    if (!state_named() || number < 0 || number >= DEVICES || !read_state(&state)) return 0;
    int64_t silent = (int64_t)(person_nanoseconds() - state.beat);
    return silent < SILENCE_NS && silent > -SILENCE_NS ? state.cards[number] & (STATE_LIFTED | STATE_BLOCKED) : 0;
}
