/* Records: what a measurement leaves behind.  JSON lines, append only, schema 2
 * (docs/measuring.md).
 *
 * Four kinds of line, told apart by "record":
 *   "machine"      facts of machine and build; once at the head of every session in the file
 *   "calibration"  a known quantity measured by the same means (bytes touched, A/A time)
 *   "point"        one implementation, one problem, one pass, one round
 *   "figure"       the names that a plan gives to the curves of a group
 *
 * One table of fields (record_fields.def) declares a point, writes it, reads it, and makes the
 * columns of the CSV.
 */
#ifndef EXPERIMENTS_MEASURE_RECORD_H
#define EXPERIMENTS_MEASURE_RECORD_H

#include <stdio.h>

#include "experiments/price/need.h"
#include "experiments/price/stack.h"
#include "tests/harness/bound/bound.h"
#include "tests/harness/inputs/case.h"

enum {
    ATTN_RECORD_SCHEMA = 2,
    ATTN_RECORD_TIMES = 64,
    ATTN_RECORD_TEXT = 512,
    ATTN_RECORD_RANKS = 64 /* that are processes, and have numbers of their own */
};

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

/* The judge's findings on the results of a point: one member, which goes from round to round. */
struct attn_judged {
    char verified[64];    /* "all", "64 rows", "same bits as round 0", "" */
    char verdict[16];     /* "PASS", ...; "": there is none */
    char worst_output[8]; /* the output of the largest ratio */
    char digest[24];      /* of the outputs, hexadecimal */
    double worst;         /* largest error / bound */
    double output[ATTN_OUTPUTS], error[ATTN_OUTPUTS]; /* of each output: largest error / bound, and
                                                         largest error by its largest number */
};

struct attn_point {
#define TEXT(name, capacity)            char name[capacity];
#define INT(name)                       int name;
#define INT64(name)                     int64_t name;
#define BYTES(name)                     int64_t name;
#define REAL(name)                      double name;
#define PART(key, kind, member, column) /* declared below */
#include "experiments/measure/record_fields.def"
    char text[ATTN_CASE_TEXT]; /* "case": the case string */
    struct attn_case c;        /* parsed from it; pass inside */
    enum attn_point_status status;
    char message[ATTN_RECORD_TEXT];
    int n_warm;
    double warm_s[ATTN_RECORD_TIMES];
    int n_live;
    char live_name[ATTN_MAX_ACCOUNTS][32]; /* the live set at the peak (largest rank) */
    int64_t live_bytes[ATTN_MAX_ACCOUNTS];
    int n_processes; /* 0: one */
    int64_t rank_priced[ATTN_RECORD_RANKS], rank_resident[ATTN_RECORD_RANKS],
        rank_process[ATTN_RECORD_RANKS];
    struct attn_need price; /* unknown: -1, flops NaN; the floor and what is beside are not kept */
    struct attn_judged judged;
    struct attn_stack stack; /* n 0: one call */
};

/* Nothing known yet: counts 0, bytes -1, reals NaN, texts empty. */
void attn_point_init(struct attn_point *point);

/* Take away all times: a result that is wrong has none. */
void attn_point_untimed(struct attn_point *point);

/* Take away what the judge found. */
void attn_point_unverified(struct attn_point *point);

/* Seconds of one call of that kind: the median where there are several; of simulated ranks the CPU
 * seconds of the slowest.  NaN where the record has none, and of processes that share cores. */
double attn_point_call_s(const struct attn_point *point, enum attn_call call);

/* One call, counted from the problem and not from the work of an implementation: flops of the
 * products for the visible pairs; bytes of inputs and outputs once, and of buffers above 1 MiB
 * twice. */
double attn_point_products(const struct attn_point *point);
double attn_point_traffic(const struct attn_point *point);

/* Take away what only ours have: price, ledger, flops, messages. */
void attn_point_not_ours(struct attn_point *point);

/* The identity of a record: one text of group, spec and case.  Of several with the same name and
 * round the last one counts. */
enum { ATTN_POINT_NAME = ATTN_CASE_TEXT + 256 };
void attn_point_name(const struct attn_point *point, char name[ATTN_POINT_NAME]);

/* The record as JSON, to be dropped. */
struct json_t;
struct json_t *attn_record_of(const struct attn_point *point);

/* One line, flushed: 0, or -1 with errno when it could not be written whole.  Unknown bytes (-1)
 * and unknown reals (NaN, also +-inf, which JSON lacks) are written as null, and read back as -1
 * and NaN. */
int attn_record_write_point(FILE *file, const struct attn_point *point);

/* The same for a line of another kind: a jansson object, which it drops. */
int attn_record_write_json(FILE *file, struct json_t *json);

/* One line, of `n` bytes, to a point.  EINVAL: not JSON, not a point, or of another schema. */
enum attn_status attn_record_parse_point(const char *line, size_t size, struct attn_point *point,
                                         struct attn_error *err);

/* The two steps of that.  A line's JSON, to be dropped, and in *kind its "record", NULL for a newer
 * schema; NULL: EINVAL.  Then a point of it.  EINVAL. */
struct json_t *attn_record_line(const char *line, size_t size, const char **kind,
                                struct attn_error *err);
enum attn_status attn_record_point(const struct json_t *line, struct attn_point *point,
                                   struct attn_error *err);

/* ---- files (record_file.c) ------------------------------------------------------------------- */

/* Open a file of records for appending, for this process alone (flock), after cutting off a torn
 * last line; made if it does not exist.  NULL on failure: EINVAL when it is no file of records
 * or its path is wrong, ENOMEM when the machine does not give it (permission, another writer). */
FILE *attn_record_append(const char *path, struct attn_error *err);

/* The contents of a file of records. */
struct attn_records {
    struct attn_point *point; /* of several of the same point and round the last, in the place of
                                 the first */
    int64_t n;
    struct json_t *machine;              /* the last such line; NULL: none */
    int machines_differ;                 /* there is one of another machine */
    struct json_t *calibration, *labels; /* arrays of such lines; "figure" has labels */
};

/* Lines of other kinds and of newer schemas are skipped; a torn last line is dropped, a broken line
 * elsewhere is EINVAL with its number.  After a failure there is nothing to free. */
enum attn_status attn_record_read(const char *path, struct attn_records *records,
                                  struct attn_error *err);
void attn_records_free(struct attn_records *records);

/* ---- the table: RFC 4180, one header line, one row for each record --------------------------- */

/* A failed write leaves its mark on the stream. */
void attn_csv_write(FILE *file, const struct attn_point *points, int64_t n);

/* A whole file or none (attn_save_open).  ENOMEM. */
enum attn_status attn_csv_save(const char *path, const struct attn_point *points, int64_t n,
                               struct attn_error *err);

#endif
