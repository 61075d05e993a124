/* Facts about the machine and the build, which a figure must print below itself. */
#ifndef EXPERIMENTS_MEASURE_MACHINE_H
#define EXPERIMENTS_MEASURE_MACHINE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { ATTN_BUILD_TEXT = 64 };

/* Everything, as a JSON object; what cannot be found out says "not available".  NULL: no memory. */
json_t *attn_machine_facts(void);

/* The FNV-1a hash of bytes, continued from `digest`.  attn_digest_file returns 0 when the path is
 * no regular file that can be read. */
#define ATTN_DIGEST_BEGIN UINT64_C(0xcbf29ce484222325)
uint64_t attn_digest_bytes(uint64_t digest, const void *data, size_t n);
int attn_digest_file(uint64_t *digest, const char *path);

/* Version, "+", and twelve digits of a digest of the running program: two builds of one dirty
 * tree differ. */
void attn_machine_build(char text[ATTN_BUILD_TEXT]);

double attn_machine_load(void);  /* 1-minute load average; NaN when not available        */
double attn_machine_steal(void); /* seconds stolen from all CPUs since boot; NaN likewise */

/* Resident memory of this process over a stretch of work: VmHWM, reset where the kernel allows. */
struct attn_resident {
    int reset;        /* clear_refs took the mark down to what is resident now         */
    int64_t before;   /* VmHWM before it was reset                                     */
    int64_t baseline; /* bytes resident at the start                                   */
    int64_t mark;     /* VmHWM then: the baseline when reset, else perhaps more        */
    int64_t hwm;      /* VmHWM at the end                                              */
    int64_t bytes;    /* hwm - baseline; -1 unknown: no reset, and the mark never moved */
};

/* Call with everything written that shall not count, and right before the work. */
void attn_resident_begin(struct attn_resident *resident);

/* Call right after the work, before anything else is allocated. */
void attn_resident_end(struct attn_resident *resident);

#endif
