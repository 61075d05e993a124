/* Studies: published accounts of attention's memory, worked out again.  `attnlab study NAME`.
 *
 * A study plays on a tape (tape.h) what a program did, at the published size or for real.
 *
 * Its result is a list of quantities, each labelled by where its published value comes from:
 *
 *   published   a source printed this number, or the code that made it says it
 *   derived     it follows from published code and sizes by arithmetic
 *   inferred    a guess that fits: it is shown, and may be wrong without failing
 *
 * A new study is one file with its function, one line in studies.def, and docs/studies/NAME.md.
 */
#ifndef EXPERIMENTS_RIM_STUDIES_STUDY_H
#define EXPERIMENTS_RIM_STUDIES_STUDY_H

#include <stdio.h>

#include "experiments/measure/record.h"
#include "experiments/report/figures.h"
#include "experiments/rim/storage/tape.h"

enum attn_study_label { ATTN_PUBLISHED, ATTN_DERIVED, ATTN_INFERRED };

enum { ATTN_STUDY_ENTRIES = 4096, ATTN_STUDY_TEXTS = 8 };

/* An entry of a counted tape.  A study must fail when one that matters is left out: `matters` is
 * set where it was live at a peak that was compared, and larger than the tolerance. */
struct attn_study_entry {
    char name[32];
    int matters;
};

/* A study while it runs.  Set before: all from out to figure. */
struct attn_study_run {
    struct attn_tape_owner owner; /* the first: a tape of this run has its address */
    FILE *out;                    /* what it says                                      */
    int as_json;                  /* one line of JSON for each quantity, nothing else  */
    int is_long;                  /* --long: also what takes more than some seconds    */
    int leave_out;    /* -1; testing: this entry takes no bytes, and no process is started */
    const char *data; /* --input FILE: its rows alone, and no others; NULL                   */
    struct attn_figure *figure; /* NULL: none is wanted; attn_study_figure_open() */

    const struct attn_study *study;
    const char *curve; /* where the next quantity is in the figure; NULL: nowhere */
    const char *panel; /* of the figure, one word; NULL: it has one */
    double x;
    int n_entries;
    struct attn_study_entry entry[ATTN_STUDY_ENTRIES];
    int n_quantities, n_failed, in_list; /* in_list: the last thing said was a quantity */
    enum attn_status lacks;              /* ENOMEM: something could not be done here */
    struct attn_error bad;               /* what is wrong with a row of data */
    char text[ATTN_STUDY_TEXTS][640];    /* of attn_study_text() */
    int n_texts;
};

/* The figure of a study, of those of its quantities that have a place in it: bars of live sets, or
 * curves, of which lines are computed and marks published. */
struct attn_study_figure {
    const char *title, *remark;
    const char *x, *y; /* names of the axes; x NULL: bars.  y NULL: bytes */
    int is_linear;     /* curves, where doublings say nothing */
};

struct attn_study {
    const char *name, *question;
    void (*run)(struct attn_study_run *run);
    int takes_input; /* --input */
    struct attn_study_figure figure;
};

#define ATTN_STUDY(id, ...) void attn_study_run_##id(struct attn_study_run *run);
#include "experiments/rim/studies/studies.def"
#undef ATTN_STUDY

enum {
#define ATTN_STUDY(id, ...) ATTN_STUDY_##id,
#include "experiments/rim/studies/studies.def"
#undef ATTN_STUDY
    ATTN_STUDIES
};
extern const struct attn_study attn_studies[ATTN_STUDIES];

/* Run it; the exit status it deserves: 1 when a published or derived quantity did not come out, or
 * nothing was compared; 2 and a line where run->data has a bad row; 3 when memory or a process was
 * not to be had. */
int attn_study_carry_out(const struct attn_study *study, struct attn_study_run *run);

/* ---- what a study says ----------------------------------------------------------------------- */

/* An entry of a study that counts bytes itself: the one of this name, or a new one.  Blocks of
 * entry run->leave_out must take no bytes. */
int attn_study_entry_of(struct attn_study_run *run, const char *name);

/* A paragraph of the account; nothing in JSON. */
void attn_study_say(struct attn_study_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* printf into a text that lives until eight others were made. */
const char *attn_study_text(struct attn_study_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A quantity: |got - published| <= tolerance, or it fails.  unit: "B", "elements", ... */
void attn_study_quantity(struct attn_study_run *run, const char *name, enum attn_study_label label,
                         double published, double got, const char *unit, double tolerance);

/* The next quantity is a point of the figure: of this curve, at x.  Where there are bars, the next
 * peak is the bar of this name.  The name lives as long as the run. */
void attn_study_place(struct attn_study_run *run, const char *curve, double x);

/* The peak of a counted tape, with its live set. */
void attn_study_peak(struct attn_tape *tape, const char *name, enum attn_study_label label,
                     double published, double tolerance);

/* The bytes that are live on a counted tape now. */
void attn_study_live(struct attn_tape *tape, const char *name, enum attn_study_label label,
                     double published, double tolerance);

/* The real one against the counted one: the peak, and its live set block by block.  Both are
 * derived and must agree to the byte. */
void attn_study_same(const char *name, const struct attn_pair *pair);

/* Numbers between -1 and 1 to compute with, for each prime others. */
void attn_study_fill(float *x, int64_t n, int64_t prime);

/* One query against n keys: the scaled scores and their softmax; then the sum of v by it. */
void attn_study_softmax(const float *q, const float *k, int64_t n, int64_t dim, float scale,
                        float *scores, float *probs);
void attn_study_sum(const float *probs, const float *v, int64_t n, int64_t dim, float *o);

/* The figure of a study before it runs, and what was placed in it as FOLDER/NAME.csv, .gp, .svg,
 * .png and .pdf.  ENOMEM: there is no gnuplot, or the folder cannot be written. */
void attn_study_figure_open(const struct attn_study *study, struct attn_figure *figure);
void attn_study_figure_add(struct attn_study_run *run, enum attn_study_label label,
                           double published, double got, const struct attn_tape_block *block,
                           int n_blocks); /* at its place; of bars, the live set */
enum attn_status attn_study_figure_draw(const struct attn_study *study, struct attn_figure *figure,
                                        const char *folder, struct attn_error *err);

/* ---- storages of masks in a study ------------------------------------------------------------ */

/* Play the making of a storage of this mask (storage.h); visible pairs of a head. */
int64_t attn_study_store(struct attn_tape *tape, const char *storage, const char *mask,
                         const struct attn_mask_shape *shape);

/* Made for real and counted, on a pair to be closed: the same bytes, and no pair wrong. */
void attn_study_store_both(struct attn_study_run *run, struct attn_pair *pair, const char *name,
                           const char *storage, const char *mask,
                           const struct attn_mask_shape *shape);

/* ---- attnlab's own implementations in a study ------------------------------------------------ */

/* Of these a study knows that they are not refused: one that is, did not come out.
 *
 * Priced: priced_bytes, total_bytes, bytes_sent, flops ... of a point. */
struct attn_point attn_study_price(struct attn_study_run *run, const char *spec, const char *text);

/* Bytes of the buffers of rank 0 at its peak whose names begin so, by the price; 0 where there are
 * none. */
int64_t attn_study_buffer(struct attn_study_run *run, const char *spec, const char *text,
                          const char *buffer);

/* Bytes that a stack of layers of this problem keeps between the passes, of "probs", "rows" or
 * "inputs" (measure/stack.h). */
double attn_study_saved(struct attn_study_run *run, const char *spec, const char *text,
                        int64_t layers, const char *save);

/* 1: the spec takes this problem; 0: it does not.  Nothing is printed. */
int attn_study_accepts(const char *spec, const char *text);

/* Run in a process of its own and judged by the oracle, as a point of `attnlab measure`: largest
 * error and ledger are quantities; the ledger must be the price.  0 when there is no such point.
 * point may be NULL. */
int attn_study_measure(struct attn_study_run *run, const char *spec, const char *text,
                       struct attn_point *point);

/* With --long: the same at a length that takes seconds or minutes; says time and resident set. */
void attn_study_measure_long(struct attn_study_run *run, const char *spec, const char *text);

#endif
