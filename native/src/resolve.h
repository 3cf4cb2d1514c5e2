/* The C library's own dlopen and dlsym, past our hooks. See resolve.c. */
#ifndef SUBAK_RESOLVE_H
#define SUBAK_RESOLVE_H

void *resolve_open(const char *soname, int flags);
void *resolve_symbol(void *library, const char *name);


#endif
