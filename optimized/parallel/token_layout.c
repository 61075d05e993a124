/* See token_layout.h. */
#include "optimized/parallel/token_layout.h"

#include "optimized/integers.h"

/* Run r of n tokens in `parts` runs: the first n % parts of them have one more. */
static struct attn_tokens run_of(int64_t n, int64_t parts, int64_t r)
{
    int64_t longer = n % parts;
    return (struct attn_tokens){r * (n / parts) + less(r, longer), 1, n / parts + (r < longer)};
}

int attn_layout_stretches(const struct attn_layout *layout)
{
    return layout->order == ATTN_ZIGZAG ? 2 : 1;
}

struct attn_tokens attn_layout_stretch(const struct attn_layout *layout, int64_t n, int r, int s)
{
    int64_t ranks = layout->ranks;
    switch (layout->order) {
    case ATTN_STRIPED:
        return (struct attn_tokens){r, ranks, n > r ? ceil_div(n - r, ranks) : 0};
    case ATTN_ZIGZAG:
        return run_of(n, 2 * ranks, s == 0 ? r : 2 * ranks - 1 - r);
    case ATTN_CONTIGUOUS:
        break;
    }
    return run_of(n, ranks, r);
}

int64_t attn_layout_tokens(const struct attn_layout *layout, int64_t n, int r)
{
    int64_t sum = 0;
    for (int s = 0; s < attn_layout_stretches(layout); s++)
        sum += attn_layout_stretch(layout, n, r, s).n;
    return sum;
}

/* The first rank or, where the longer runs of a zigzag reach into the second half, the last. */
int64_t attn_layout_most(const struct attn_layout *layout, int64_t n)
{
    return greater(attn_layout_tokens(layout, n, 0),
                   attn_layout_tokens(layout, n, layout->ranks - 1));
}
