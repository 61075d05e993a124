/* How prices are shown: as text for people on standard output, or as JSON in an array. */
#ifndef EXPERIMENTS_PRICE_SHOW_H
#define EXPERIMENTS_PRICE_SHOW_H

#include <jansson.h>

#include "experiments/price/asked.h"

/* cost: of each of need->ranks.  all: NULL for text, else where one object for each goes. */
void attn_price_show(const struct attn_price_asked *asked, const struct attn_need *need,
                     const struct attn_cost *cost, json_t *all);

/* Shows, in the place of a price, why the implementation refuses. */
void attn_price_show_refused(const struct attn_price_asked *asked, const char *why, json_t *all);

/* Print an array of them and free it; NULL, for text: nothing. */
void attn_price_print_json(json_t *all);

/* A row more: the longest length, and the bytes of it and of one more; why: NULL, or a refusal. */
void attn_price_add_longest(const struct attn_price_asked *asked, int64_t length,
                            const double bytes[2], const char *why, json_t *all);
void attn_price_print_longest(const json_t *all);

/* {"spec", "pass", extents, "mask", "dtype", of a stack "layers", "hidden", "save"}. */
json_t *attn_price_asked_json(const struct attn_price_asked *asked);

/* "spec  pass  shape", of a stack with its layers; no end of line. */
void attn_price_print_asked(const struct attn_price_asked *asked);

/* Prints the need beside a price, by --params, and the parts of a stack that are not counted; for a
 * call nothing. */
void attn_price_print_beside(const struct attn_price_asked *asked);

/* Prints the instruction set that a price depends on where the spec does not name it: "priced for
 * avx2", or nothing. */
void attn_price_print_isa(const struct attn_spec *spec, const char *before, const char *after);

/* "3.2 MiB", or where it is more than 64 bits hold, so. */
const char *attn_price_bytes(double bytes, char text[32]);

#endif
