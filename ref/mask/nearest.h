/* "Did you mean ...?": of the words that there are, the one that was probably meant. */
#ifndef REF_MASK_NEAREST_H
#define REF_MASK_NEAREST_H

#include <stddef.h>

struct attn_nearest {
    const char *word; /* as it was given: n letters */
    size_t n;
    const char *best; /* NULL: nothing that was offered is near */
    int distance;
};

/* Begin with a word; then offer each word that there is.  Near means at most two letters changed,
 * added or left out, and fewer than half of the word's. */
struct attn_nearest attn_nearest_begin(const char *word, size_t n);
void attn_nearest_offer(struct attn_nearest *nearest, const char *there);

/* " (did you mean X?)" or "", for a message. */
const char *attn_nearest_text(const struct attn_nearest *nearest, char text[64]);

#endif
