/*
 * One token per GPU: the process that holds it may launch. See token.c for the file, turns.h for the rules.
 * Calls for one token come from one thread at a time (the gate's mutex).
 */
#ifndef SUBAK_TOKEN_H
#define SUBAK_TOKEN_H

#include "turns.h"

struct token {
    char path[256];
    int file;      /* -1: there is no shared file, and the token is ours when we want it */
    uint64_t inode, device; /* of the file */
    void *futexes; /* the file mapped: an address for futex calls, which only the kernel touches */
    uint64_t id;   /* of this process */
    int slot;      /* -1: none claimed */
    bool held;
    bool unasked;     /* held without the table's consent, after waiting too long for it */
    bool light;       /* how we asked */
    uint64_t owner;   /* the table's owner word while we hold */
    uint64_t beat;
    int64_t beaten;   /* when */
    int64_t asked;    /* since when we wait; 0: we do not */
    int64_t stuck;    /* when the file's lock was last found stuck */
    int64_t looked;   /* when the file was last looked for by name */
    struct sight sight;
    struct turns turns; /* as last read */
};

struct token_view {
    bool lost;   /* somebody took it from us */
    bool waiter; /* somebody waits for it */
    bool light;  /* one of those is light */
};

void token_init(struct token *token, const char *directory, const char *gpu);
void token_close(struct token *token);

/* Takes the token if it is free and nobody waits. `*switched`: another process had it before us. */
bool token_try(struct token *token, int64_t now, bool *switched);

/* Queues up; then token_wait until it gives true. Each call sleeps 2 ms at most and shows that we live. */
void token_ask(struct token *token, int64_t now, bool light);
bool token_wait(struct token *token, bool *switched);

/* Whether another process holds the token. */
bool token_is_out(struct token *token, int64_t now);

/* The holder's heartbeat and look around. */
struct token_view token_poll(struct token *token, int64_t now);

/* Hands the token to who has waited longest, or leaves it free. Also ends waiting. */
void token_release(struct token *token, int64_t now);

/* A limited tenant with work says so, for those without a limit; and they wait to hear it. */
void token_arm(struct token *token);
uint32_t token_armed(struct token *token);
const void *token_armed_word(struct token *token); /* for futex_wait; NULL if there is no file */

#endif
