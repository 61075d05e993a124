/* Grids of tokens: what the rules (kind_grid.c) and the calls (kind_grid_calls.c) share. */
#ifndef REF_MASK_GRID_H
#define REF_MASK_GRID_H

#include "ref/mask/mask_internal.h"

/* One axis of a grid.  The coordinate of a token on it is token / stride % extent.  The axis lets
 * query coordinate x see key coordinate y if least <= y - x <= most and step divides y - x. */
struct mask_axis {
    int64_t extent, stride;
    int64_t least, most, step;
};
enum { MASK_AXES = 3 };

struct mask_grid {
    struct mask_axis axis[MASK_AXES]; /* outermost first, the last of stride 1; all must let see */
    int n_axes;
    int norm;       /* of two axes: 1 the sum of both distances, 2 Euclid's; 0: not asked */
    int64_t radius; /* the distance in this norm is below it; 0: the axes alone decide    */
};

/* Make the node a grid. */
void attn_mask_set_grid(struct mask_parser *p, struct mask_node *node,
                        const struct mask_grid *grid);

#endif
