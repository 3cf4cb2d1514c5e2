/* Start-up. See driver.c. */
#ifndef SUBAK_STARTUP_H
#define SUBAK_STARTUP_H

/* From now on the child of a fork begins anew. To be called before anything is remembered about this process. */
void startup_watch_forks(void);

#endif
