/* Amounts as people write them. See amount.c. */
#ifndef SUBAK_AMOUNT_H
#define SUBAK_AMOUNT_H

#include <stdbool.h>
#include <stdint.h>

/* Memory in bytes: "4096m", "1.5g", "8Gi", "8GB", "0x10m", "1073741824". False if the text is no amount. */
bool amount_bytes(const char *text, uint64_t *bytes);

/* A share of a card in percent, a whole number. Above 100 means 100. False if the text is no share. */
bool amount_percent(const char *text, unsigned *percent);

#endif
