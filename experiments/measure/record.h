/* Records: what a measurement leaves behind.  JSON lines, append only, schema 2
 * (docs/measuring.md).
 *
 * Four kinds of line, told apart by "record":
 *   "machine"      facts of machine and build; once at the head of every session in the file
 *   "calibration"  a known quantity measured by the same means (bytes touched, A/A time)
 *   "point"        one implementation, one problem, one pass, one round
 *   "figure"       what a plan says of a figure: title, labels, colours, ranges
 *
 * One table of fields (record.c) writes a point, reads it, and makes the columns of the CSV.
 */
#ifndef EXPERIMENTS_MEASURE_RECORD_H
#define EXPERIMENTS_MEASURE_RECORD_H

#include <stdio.h>

#include "ref/impl.h"
#include "tests/harness/bound/bound.h"
#include "tests/harness/cases/cases.h"

enum { ATTN_RECORD_SCHEMA = 2, ATTN_RECORD_TIMES = 64, ATTN_RECORD_TEXT = 512 };

/* Strings below are the values of "status". */
enum attn_point_status {
    ATTN_POINT_OK,
    ATTN_POINT_WRONG,   /* ran, but disagrees with the oracle: has no time            */
    ATTN_POINT_REFUSED, /* the implementation does not claim this problem             */
    ATTN_POINT_TOO_BIG, /* priced above what the machine has: never attempted         */
    ATTN_POINT_DROPPED, /* the plan's time budget was used up                         */
    ATTN_POINT_TIMEOUT,
    ATTN_POINT_KILLED,        /* by a signal; the kernel out of memory looks like this (SIGKILL) */
    ATTN_POINT_OUT_OF_MEMORY, /* the system or the ledger refused memory; the price is beside */
    ATTN_POINT_PRICED,        /* beyond the plan's limit: only its price was asked for      */
    ATTN_POINT_ERROR
};
const char *attn_point_status_name(enum attn_point_status status); /* "ok", "wrong", "refused",
    "too-big", "dropped", "timeout", "killed", "out-of-memory", "priced", "error" */

/* Which call of its process a time is of.  The first one finds code, inputs and buffers that
 * nothing has touched yet, and may take many times as long: the two are never mixed. */
enum attn_call { ATTN_CALL_WARM, ATTN_CALL_FIRST };

struct attn_point {
    char group[32]; /* of the plan: figures pick their points by its first
                                      word: length-WORD (curves against L, one panel of masks
                                      a group), ranks, density (docs/measuring.md)          */
    char spec[128], impl[32], family[32];
    char text[ATTN_CASE_TEXT]; /* "case": the case string                             */
    struct attn_case c;        /* parsed from it; pass inside                         */
    char build[64];            /* version + digest of the program that measured        */
    char session[32];          /* the machine line it belongs to                       */
    int round;
    enum attn_point_status status;
    char message[ATTN_RECORD_TEXT];
    int64_t pairs;  /* visible pairs, all batches and heads                */
    double density; /* pairs / (B H Lq Lk)                                 */
    int ranks;
    int n_warm;
    double first_s, warm_s[ATTN_RECORD_TIMES]; /* seconds of the first call; of those after it */
    double first_cpu_max_s, first_cpu_sum_s;   /* CPU time of simulated ranks: slowest, all    */
    double warm_cpu_max_s, warm_cpu_sum_s;     /* the same, medians over the warm calls        */
    int64_t priced_bytes;              /* peak of one rank (the largest) from cost()          */
    int64_t ledger_bytes;              /* the same from its ledger                            */
    int64_t process_ledger_bytes;      /* peak of the process ledger: all ranks together      */
    int64_t floor_bytes;               /* inputs and outputs                                  */
    int64_t baseline_bytes, hwm_bytes; /* VmHWM before the first call, and after the last */
    int64_t resident_bytes;            /* hwm - baseline                                      */
    int hwm_reset; /* VmHWM was reset at the baseline (clear_refs); see docs/measuring.md */
    int64_t minor_faults, major_faults; /* of the first call                             */
    int n_live;
    char live_name[ATTN_MAX_ACCOUNTS][32]; /* the live set at the peak (largest rank)     */
    int64_t live_bytes[ATTN_MAX_ACCOUNTS];
    double flops;       /* all ranks */
    int64_t bytes_sent; /* of the rank that sends most, forward or backward    */
    int64_t messages;
    char verified[64]; /* "all", "64 rows", "same bits as round 0", ""        */
    char verdict[16];  /* "PASS", ...                                         */
    double worst;      /* largest error / bound                               */
    char worst_output[8];
    /* "worst_o", "worst_lse", ... "worst_dbias": the same for each output alone; unknown where
     * it was not compared.  The error figure is drawn from these. */
    double output_worst[ATTN_OUTPUTS];
    char digest[24];                  /* of the outputs, hexadecimal                         */
    double setup_s, verify_s, wall_s; /* making the data; the oracle; the whole process   */
    double load, steal_s;             /* 1-minute load before; CPU time stolen meanwhile      */
    char time_source[16];             /* "calls": our clock around each; "reported": by a
                                         command; "command": see docs/measuring.md; ""    */
    /* Of an implementation that is not ours; what the ledger and prices know is unknown then. */
    char route[16];   /* "plug-in", "command"; "": ours                      */
    char source[512]; /* its file, or its command                            */
    char source_digest[24];
    int64_t mask_bytes;  /* of the mask as it was given: a byte for each pair; -1: not as bytes */
    int64_t saved_bytes; /* of the peak, what lives from the forward pass to the backward one */
    int layers;          /* of a stack (stack.h); 0: one call                              */
    int hidden;          /* C of its layers; 0: attention alone                            */
    char save[8];        /* what its layers save: "probs", "rows", "inputs"; "": no stack   */
    double again_flops, again_s; /* of flops and first_s, of forward passes made again    */
    int64_t shard_bytes; /* inputs and outputs of the rank that has most of them; of one process
                            all that its pass has                                          */
    int64_t total_bytes; /* price and shard of the rank for which they are most together    */
    const char *origin;  /* not in a record: which of several files it is of (borrowed); NULL */
};

/* Nothing known yet: counts 0, bytes -1, reals NaN, texts empty. */
void attn_point_init(struct attn_point *point);

/* Take away all times: a result that is wrong has none. */
void attn_point_untimed(struct attn_point *point);

/* Seconds of one call of that kind: the median where there are several; with more than one rank
 * the CPU seconds of the slowest.  NaN where the record has none. */
double attn_point_call_s(const struct attn_point *point, enum attn_call call);

/* Take away what only ours have: price, ledger, flops, messages. */
void attn_point_not_ours(struct attn_point *point);

/* What a record is of, one text of group, spec and case: of several of the same name and round the
 * last one counts. */
enum { ATTN_POINT_NAME = ATTN_CASE_TEXT + 256 };
void attn_point_name(const struct attn_point *point, char name[ATTN_POINT_NAME]);

/* One line, in one write(), so that lines of two writers never mix.  Returns 0, or -1 with errno
 * when it could not be written whole.  Unknown bytes (-1) and unknown reals (NaN, also +-inf,
 * which JSON lacks) are written as null, and read back as -1 and NaN. */
int attn_record_write_point(FILE *file, const struct attn_point *point);

/* The same for a line of another kind: a jansson object, which it drops. */
struct json_t;
int attn_record_write_json(FILE *file, struct json_t *json);

/* One line, of so many bytes, to a point.  EINVAL: not JSON, not a point, or of another schema. */
enum attn_status attn_record_parse_point(const char *line, size_t size, struct attn_point *point,
                                         struct attn_error *err);

/* Open a file of records for appending, for this process alone (flock), after cutting off a torn
 * last line; made if it does not exist.  NULL on failure: EINVAL when it is no file of records
 * or its path is wrong, ENOMEM when the machine does not give it (permission, another writer). */
FILE *attn_record_append(const char *path, struct attn_error *err);

/* What a file of records holds. */
struct attn_records {
    struct attn_point *point; /* of several of the same point and round the last, in the place of
                                 the first */
    int64_t n;
    struct json_t *machine;               /* the last such line; NULL: none */
    int machines_differ;                  /* there is one of another machine */
    struct json_t *calibration, *figures; /* arrays of such lines           */
};

/* Lines of other kinds and of newer schemas are skipped; a torn last line is dropped, a broken line
 * elsewhere is EINVAL with its number.  After a failure there is nothing to free. */
enum attn_status attn_record_read(const char *path, struct attn_records *records,
                                  struct attn_error *err);
void attn_records_free(struct attn_records *records);

/* ---- the table: RFC 4180, one header line, one row for each record --------------------------- */

/* One field, quoted where it must be. */
void attn_csv_text(FILE *file, const char *text);

/* What cannot be written leaves its mark on the stream. */
void attn_csv_write(FILE *file, const struct attn_point *points, int64_t n);

/* A whole file or none (attn_save_open).  ENOMEM. */
enum attn_status attn_csv_save(const char *path, const struct attn_point *points, int64_t n,
                               struct attn_error *err);

#endif
