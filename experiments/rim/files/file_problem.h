/* One attention problem whose tensors are in files: what `attnlab run` works on, and the rule
 * `bound` of `attnlab compare`.
 *
 *      a source of tensors (tensors.h), flags  ->  struct attn_files  ->  results, verdicts
 *
 * file_problem.c goes from files to a problem, step by step, and reads headers only (and the
 * tensors that a mask names); its steps are in file_settings.c (words and numbers of flags and
 * metadata), file_shape.c (layouts, packed batches) and file_mask.c.  file_run.c prices, computes
 * and writes; file_compare.c judges.  A failure has one line in err.  A remark that is no failure
 * goes to stderr as a note.
 */
#ifndef EXPERIMENTS_RIM_FILES_FILE_PROBLEM_H
#define EXPERIMENTS_RIM_FILES_FILE_PROBLEM_H

#include "experiments/rim/files/tensors.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "tests/harness/base/layout.h"
#include "tests/harness/cases/claims.h"

enum attn_file_input {
    ATTN_IN_Q,
    ATTN_IN_K,
    ATTN_IN_V,
    ATTN_IN_DO,
    ATTN_IN_BIAS,
    ATTN_IN_KEY_MASK,
    ATTN_IN_CU_Q,
    ATTN_IN_CU_K,
    ATTN_IN_DLSE,
    ATTN_IN_SINK,
    ATTN_IN_INPUTS
};

/* Their names in files, "q", "key_mask", ..., and their axes, where they belong to the problem. */
struct attn_file_role {
    const char *name;
    enum attn_file_axes axes;
};
extern const struct attn_file_role attn_file_role[ATTN_IN_INPUTS];

/* The flags as they were written; NULL: not given. */
struct attn_request {
    const char *spec, *input;
    const char *mask, *scale, *softcap, *alibi, *alibi_align, *layout, *heads, *kv_heads;
    const char *out, *log;
    const char *only; /* names of outputs: no others are judged */
    const char *names, *arithmetic, *claims;
    int64_t rows;     /* that are compared; 0: as usual */
    int pass, format; /* words of their flags; pass: ATTN_PASS_NOT_SAID */
    int compare, d_bias;
};
enum { ATTN_PASS_NOT_SAID = -1 };

/* Keys of the tile whose rescales the bounds of given results have. */
#define ATTN_FILES_PLAIN "tiled-textbook"
#define ATTN_FILES_CLAIMS_HELP                                                             \
    "of results that are given: arithmetic, precisions, layout and lse as this JSON file " \
    "declares "                                                                            \
    "them (docs/external.md)"
enum { ATTN_FILES_NAMED = 16 }; /* tensors that one mask may name */

/* A packed batch, [T,H,d]: document t has queries [q[t],q[t+1]) and keys [k[t],k[t+1]).  Where all
 * are of one length they are the problem's batch entries; else the problem is one entry, under a
 * documents() mask. */
struct attn_packed_batch {
    int64_t n, *q, *k; /* n + 1 numbers each */
    int is_even, is_self;
};

struct attn_files {
    const struct attn_request *request; /* borrowed */
    const struct attn_log *log;         /* notes messages between ranks; NULL: none */
    struct attn_spec spec;
    struct attn_claims claims;      /* of --claims or --arithmetic; else 0 */
    const struct attn_tensors *set; /* where everything lies: its own, or the caller's */
    struct attn_tensors own;
    const struct attn_tensors_entry *input[ATTN_IN_INPUTS]; /* of the set; NULL: absent */
    const struct attn_file *file[ATTN_IN_INPUTS];           /* the different files of these */
    int n_files;
    const struct attn_tensors_entry *stored[ATTN_OUTPUTS];  /* results beside the inputs */
    const struct attn_file_tensor *named[ATTN_FILES_NAMED]; /* by the mask */
    int n_named;
    const char *layout_words; /* "B,H,L,d", ... */
    struct attn_file_layout layout,
        key_layout;                  /* of k, v, dk and dv: [B,G,L,d] beside a folded q */
    struct attn_packed_batch packed; /* where the layout is */
    struct attn_case c;          /* its tensors are those of the files; fill and seed say nothing */
    int given;                   /* output[] was not computed here but taken from a file */
    struct attn_problem problem; /* of the case, from attn_files_mask on */
    struct attn_mask *mask;
    char *mask_text;                              /* of the case */
    void *mask_bytes;                             /* of the word `dense`, as the problem has them */
    double *slope;                                /* ALiBi, [H] */
    char *alibi;                                  /* the text they came from */
    struct attn_file_tensor output[ATTN_OUTPUTS]; /* after attn_files_run; data == NULL: none */
    const struct attn_file *lse_from;             /* where `given` LSE comes from */
};

/* ---- file_problem.c -------------------------------------------------------------------------- */

/* Open the files, unless a set of tensors is given (else NULL), and settle every question.  EINVAL,
 * ENOTSUP, ENOMEM.  Close them after a failure too. */
enum attn_status attn_files_open(const struct attn_request *request, const struct attn_tensors *set,
                                 struct attn_files *files, struct attn_error *err);
void attn_files_close(struct attn_files *files);

/* The inputs that the pass reads, into memory; a mask's tensors are there already. */
enum attn_status attn_files_load(struct attn_files *files, struct attn_error *err);

/* The conventions of LSE that metadata declare: base 2, +inf for empty rows, none.  The metadata of
 * the result's own file win over those beside the inputs; NULL: nothing more. */
void attn_files_lse(const struct attn_files *files, const struct attn_file *result,
                    struct attn_claims *claims);

/* Why a tensor plays no part: no input, no mask, and no result that a comparison
 * judges.  NULL: it plays one, or was left aside by --only.  *is_result: it may have been meant
 * as a result, so that a comparison which leaves it out has not judged all that it was given. */
const char *attn_files_unused(const struct attn_files *files,
                              const struct attn_tensors_entry *entry, int *is_result);

/* The reason why a given result of this name cannot be judged; NULL: it can.  from: its file, as
 * for attn_files_lse. */
const char *attn_files_why_not(const struct attn_files *files, enum attn_output output,
                               const struct attn_file *from);

/* Give tensors the names that attnlab has: `names` is "q=query,k=key"; NULL: nothing to do.
 * EINVAL: no such name, or none of the n sets has such a tensor. */
enum attn_status attn_files_rename(const char *names, struct attn_tensors *const *set, int n,
                                   struct attn_error *err);

/* By name: an enum attn_output, an enum attn_file_input; -1: none. */
int attn_output_named(const char *name);
int attn_file_input_named(const char *name);

/* computes: 1: this run computes an output.  asks: 1: a comparison is to judge it (--only). */
int attn_files_computes(const struct attn_files *files, enum attn_output output);
int attn_files_asks(const struct attn_files *files, enum attn_output output);
int attn_files_judges_bias(const struct attn_files *files); /* some dbias is to be judged */
int attn_files_judges_sink(const struct attn_files *files); /* some dsink */

/* ---- file_settings.c ------------------------------------------------------------------------- */

void attn_files_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The metadata under a key, NULL: none.  says: 1: it is this word. */
const char *attn_files_said(const struct attn_files *files, const char *key);
int attn_files_says(const struct attn_files *files, const char *key, const char *word);

/* The flag, else the metadata; a flag that overrules a file is noted. */
const char *attn_files_setting(const struct attn_files *files, const char *key);

/* A whole number that metadata must say. */
enum attn_status attn_files_integer(const struct attn_files *files, const char *key, int64_t *value,
                                    struct attn_error *err);

/* Steps: no file contradicts another; the layout; scale and softcap; the bias. */
enum attn_status attn_files_agree(struct attn_files *files, struct attn_error *err);
enum attn_status attn_files_axes(struct attn_files *files, struct attn_error *err);
enum attn_status attn_files_numbers(struct attn_files *files, struct attn_error *err);
enum attn_status attn_files_bias(struct attn_files *files, struct attn_error *err);

/* ---- file_mask.c ----------------------------------------------------------------------------- */

enum attn_status attn_files_mask(struct attn_files *files, struct attn_error *err); /* a step */

/* ---- file_shape.c ---------------------------------------------------------------------------- */

/* A step: the documents of a packed batch; then the extents of the problem from q, k, v; then those
 * of every other tensor against it. */
enum attn_status attn_files_shapes(struct attn_files *files, struct attn_error *err);

/* Turn files->mask_text, which speaks of each document, into one that speaks of the problem.
 * EINVAL: the mask language cannot say it. */
enum attn_status attn_files_packed_mask(struct attn_files *files, struct attn_error *err);

/* name, dtype, extents and bytes of an output; logical extents b, h, row, feature. */
void attn_files_output_shape(const struct attn_files *files, enum attn_output output,
                             struct attn_file_tensor *tensor);

/* EINVAL, unless a tensor (NULL: none) is of the shape that this output has, and of a floating
 * type. */
enum attn_status attn_files_fits(const struct attn_files *files,
                                 const struct attn_tensors_entry *entry, enum attn_output output,
                                 struct attn_error *err);

/* In a bias and its gradient, extents of 1 are broadcast: their stride is 0. */
enum attn_file_axes attn_file_axes_of(enum attn_output output);

struct attn_view attn_files_view(const struct attn_files *files,
                                 const struct attn_file_tensor *tensor, enum attn_file_axes kind);
struct attn_cview attn_files_cview(const struct attn_files *files,
                                   const struct attn_file_tensor *tensor, enum attn_file_axes kind);
struct attn_cview attn_files_input(const struct attn_files *files,
                                   enum attn_file_input input); /* data == NULL: absent */

/* ---- file_run.c ------------------------------------------------------------------------------ */

/* ENOMEM where there is no memory for it: the price and the largest buffers are in the line. */
enum attn_status attn_files_price(const struct attn_files *files, struct attn_error *err);
enum attn_status attn_files_run(struct attn_files *files, struct attn_error *err);

/* Its parts, for who makes the calls: inputs into memory, room for outputs; then the tensors of a
 * pass. */
enum attn_status attn_files_begin(struct attn_files *files, struct attn_error *err);
struct attn_forward attn_files_forward(const struct attn_files *files);
struct attn_backward attn_files_backward(const struct attn_files *files);

/* Write result.safetensors, or one .npy for each output, into the folder of --out.  Before anything
 * is computed: make that folder, and see whether they could be written (attn_save_check). */
enum attn_status attn_files_may_write(const struct attn_files *files, struct attn_error *err);
enum attn_status attn_files_write(const struct attn_files *files, struct attn_error *err);

/* ---- file_compare.c -------------------------------------------------------------------------- */

/* Of n rows or keys, how many are compared: as --rows says, else all up to 2048, else 64 that the
 * hash chooses. */
int64_t attn_files_compared(const struct attn_files *files, int64_t n);

/* The counts of a comparison: results beyond their bounds, and tensors that were given and could
 * not be judged.  Its exit status: 1, 2, or 0 where both are 0. */
struct attn_found {
    int n_bad, n_unjudged;
};
int attn_found_exit(const struct attn_found *found);

/* Print the table of errors to stdout: every output that was computed and every one beside the
 * inputs, in the type in which it is stored, and a line for each tensor that could not be
 * judged. */
enum attn_status attn_files_compare(const struct attn_files *files, struct attn_found *found,
                                    struct attn_error *err);

/* The rule `bound` of attnlab compare: the outputs that `got` holds, and those beside the inputs
 * ("the file"), in the same way.  inputs: the set with q, k, v; what problem it is comes from
 * `request` (mask, scale, ..., and spec: whose precisions the bound assumes) and the file's
 * metadata. */
enum attn_status attn_compare_bound(const struct attn_request *request,
                                    const struct attn_tensors *inputs,
                                    const struct attn_tensors *got, struct attn_found *found,
                                    struct attn_error *err);

#endif
