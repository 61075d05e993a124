/* Grids of tokens: what the rules (kind_grid.c) and the calls (kind_grid_calls.c) share. */
#ifndef REF_MASK_GRID_H
#define REF_MASK_GRID_H

#include "ref/mask/mask_internal.h"

/* One coordinate of a token on a grid is token / stride % extent.  Key coordinate y is visible from
 * query coordinate x when least <= y - x <= most and step divides y - x. */
struct mask_axis {
    int64_t extent, stride;
    int64_t least, most, step;
};
enum { MASK_AXES = 3 };

struct mask_grid {
    struct mask_axis axis[MASK_AXES]; /* outermost first, the last of stride 1; all must see */
    int n_axes;
    int norm;       /* with two axes: 1 or 2 = their distances together are below ... */
    int64_t radius; /* ... radius, in that norm; 0 = no such rule                     */
};

/* Make the node a grid. */
void attn_mask_set_grid(struct mask_parser *p, struct mask_node *node,
                        const struct mask_grid *grid);

#endif
