/* Files of records, of several machines or builds, to be looked at side by side: each keeps its
 * points, which know by `origin` where they are from, and no row, median or curve mixes them. */
#ifndef EXPERIMENTS_REPORT_SOURCES_H
#define EXPERIMENTS_REPORT_SOURCES_H

#include "experiments/measure/record.h"

enum { ATTN_SOURCES_MOST = 4, ATTN_SOURCE_NAME = 64 };

struct attn_sources {
    int n;
    const char *path[ATTN_SOURCES_MOST];            /* borrowed                                   */
    char name[ATTN_SOURCES_MOST][ATTN_SOURCE_NAME]; /* by what differs: processor, cores, memory,
                                                      version, build; else the file; "" if n is 1 */
    struct json_t *machine[ATTN_SOURCES_MOST];      /* its last machine line; NULL: none          */
    struct attn_records all;                        /* those of all files; machine: of the last   */
};

/* EINVAL: too many, one twice, or as attn_record_read.  After a failure there is nothing to free.
 * Points borrow their origin: the sources stay where they are. */
enum attn_status attn_sources_read(const char *const *path, int n, struct attn_sources *sources,
                                   struct attn_error *err);
void attn_sources_free(struct attn_sources *sources);

/* Do the machine lines of two files say different things under this key? */
int attn_sources_differ(const struct attn_sources *sources, const char *key);

#endif
