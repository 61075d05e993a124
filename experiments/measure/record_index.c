/* Open addressing, at most half full. */
#include "experiments/measure/record_index.h"

#include <stdlib.h>
#include <string.h>

static uint64_t add_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3); /* FNV-1a */
    return (hash ^ 0xff) * UINT64_C(0x100000001b3);
}

static size_t hash_of(const struct attn_point *p)
{
    uint64_t hash = add_text(UINT64_C(0xcbf29ce484222325), p->text);
    hash = add_text(add_text(hash, p->spec), p->group);
    hash = (hash ^ (uint64_t)p->round) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash ^ hash >> 32);
}

/* The slot that holds such a record, or the free one where it belongs. */
static int64_t *find(const struct attn_record_index *index, const struct attn_point *points,
                     const struct attn_point *point)
{
    size_t at = hash_of(point) & (index->room - 1);
    while (index->slot[at] != 0 && !attn_point_same(&points[index->slot[at] - 1], point))
        at = (at + 1) & (index->room - 1);
    return &index->slot[at];
}

static int grow(struct attn_record_index *index, const struct attn_point *points)
{
    struct attn_record_index larger = {.room = index->room == 0 ? 64 : 2 * index->room,
                                       .used = index->used};
    larger.slot = calloc(larger.room, sizeof *larger.slot);
    if (larger.slot == NULL)
        return -1;
    for (size_t s = 0; s < index->room; s++)
        if (index->slot[s] != 0)
            *find(&larger, points, &points[index->slot[s] - 1]) = index->slot[s];
    free(index->slot);
    *index = larger;
    return 0;
}

int64_t attn_record_index_place(struct attn_record_index *index, const struct attn_point *points,
                                int64_t n)
{
    if (2 * (index->used + 1) > index->room && grow(index, points) != 0)
        return -1;
    int64_t *slot = find(index, points, &points[n]);
    if (*slot != 0)
        return *slot - 1;
    *slot = n + 1;
    index->used++;
    return n;
}

void attn_record_index_free(struct attn_record_index *index)
{
    free(index->slot);
    memset(index, 0, sizeof *index);
}
