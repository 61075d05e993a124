/* One attention problem whose tensors are in files: what `attnlab run` works on.
 *
 * file_problem.c turns files, their metadata and flags into a problem, and reads headers only (and
 * the tensors that a mask names); file_shape.c says what shape each tensor must have, file_packed.c
 * which documents a packed batch has, file_mask.c which mask, file_words.c what the words of
 * `attnlab vectors` mean; file_run.c prices, loads, computes and writes; file_compare.c judges.
 * Failures are statuses with one line; what a caller should know although it is no failure goes to
 * stderr as a note.
 */
#ifndef EXPERIMENTS_PROBLEM_FILE_PROBLEM_H
#define EXPERIMENTS_PROBLEM_FILE_PROBLEM_H

#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "tests/harness/cases/claims.h"
#include "tests/harness/files/files.h"

enum attn_file_problem_input {
    ATTN_FILE_PROBLEM_Q,
    ATTN_FILE_PROBLEM_K,
    ATTN_FILE_PROBLEM_V,
    ATTN_FILE_PROBLEM_DO,
    ATTN_FILE_PROBLEM_BIAS,
    ATTN_FILE_PROBLEM_KEY_MASK,
    ATTN_FILE_PROBLEM_CU_Q,
    ATTN_FILE_PROBLEM_CU_K,
    ATTN_FILE_PROBLEM_DLSE, /* from --input only */
    ATTN_FILE_PROBLEM_INPUTS
};
const char *
attn_file_problem_input_name(enum attn_file_problem_input input); /* "q", "key_mask", ... */

/* The flags as they were written; NULL: not given. */
struct attn_request {
    const char *spec, *input, *file[ATTN_FILE_PROBLEM_INPUTS];
    const char *mask, *scale, *softcap, *alibi, *alibi_align, *layout, *heads, *kv_heads, *pass;
    const char *out, *format;
    const char *only; /* names of outputs: no others are judged */
    int compare, d_bias;
};

enum { ATTN_FILE_PROBLEM_NAMED = 16 }; /* tensors that one mask may name */

/* A packed batch, [T,H,d]: document t has queries [q[t],q[t+1]) and keys [k[t],k[t+1]).  Where all
 * are of one length they are the problem's batch entries; else the problem is one entry, under a
 * documents() mask. */
struct attn_file_problem_packed {
    int64_t n, *q, *k; /* n + 1 numbers each */
    int is_even, is_self;
};

struct attn_file_problem {
    const struct attn_request *request; /* borrowed */
    struct attn_spec spec;
    struct attn_file file[ATTN_FILE_PROBLEM_INPUTS]; /* one, or one for each input */
    int n_files;
    struct attn_file_tensor *input[ATTN_FILE_PROBLEM_INPUTS]; /* into the files; NULL: absent */
    struct attn_file *from[ATTN_FILE_PROBLEM_INPUTS];         /* where each is */
    struct attn_file_tensor *stored[ATTN_OUTPUTS];            /* results beside the inputs */
    const struct attn_file_tensor *named[ATTN_FILE_PROBLEM_NAMED]; /* by the mask */
    int n_named;
    int n_axes;        /* of q: 4, 3 (no batch) or 2 (no heads either) */
    int layout;        /* row of the table in file_problem.c */
    int blhd;          /* [B,L,H,d] instead of [B,H,L,d]; of the next two also */
    int thd;           /* [T,H,d] */
    int64_t folded[2]; /* [B,L,H d]: heads of q, heads of k; else 0 */
    struct attn_file_problem_packed packed; /* where thd is 1 */
    enum attn_pass pass;
    int d_bias; /* the gradient of the bias is computed */
    int given;  /* output[] was not computed here but taken from a file */
    struct attn_problem problem;
    struct attn_mask *mask;
    char *mask_text;
    void *mask_bytes;  /* of the word `dense`, as the problem has them */
    double *slope;     /* ALiBi, [H] */
    const char *alibi; /* the text they came from */
    char *words[2];    /* of vectors: slopes and their alignment */
    struct attn_file_tensor
        output[ATTN_OUTPUTS];         /* after attn_file_problem_run; data == NULL: none */
    const struct attn_file *lse_from; /* where `given` LSE comes from */
};

/* file_problem.c: open the files, settle every question.  Whatever is returned,
 * attn_file_problem_close is due. */
enum attn_status attn_file_problem_open(const struct attn_request *request,
                                        struct attn_file_problem *files, struct attn_error *err);
void attn_file_problem_close(struct attn_file_problem *files);

const char *attn_file_problem_layout(const struct attn_file_problem *files); /* "B,H,L,d", ... */

/* "attnlab run: note: ..." to stderr. */
void attn_file_problem_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* file_mask.c: which mask, from flag, metadata and key_mask; loads the tensors that it names. */
enum attn_status attn_file_problem_mask(struct attn_file_problem *files, struct attn_error *err);

/* The flag, else the metadata of that key; NULL: neither.  EINVAL: two files contradict. */
enum attn_status attn_file_problem_setting(const struct attn_file_problem *files, const char *key,
                                           const char *flag, const char **value,
                                           struct attn_error *err);
enum attn_status attn_file_problem_metadata(const struct attn_file_problem *files, const char *key,
                                            const char **value, struct attn_error *err);

/* file_packed.c: the documents of a packed batch; before the shapes. */
enum attn_status attn_file_problem_packed_open(struct attn_file_problem *files,
                                               struct attn_error *err);

/* The text of a mask that speaks of each document, as one that speaks of the problem; malloc'ed.
 * EINVAL: the mask language cannot say it. */
enum attn_status attn_file_problem_packed_mask(const struct attn_file_problem *files,
                                               const char *text, char **whole,
                                               struct attn_error *err);

/* file_words.c: whether the metadata hold this word under this key. */
int attn_file_problem_words_is(const struct attn_file_problem *files, const char *key,
                               const char *word);

/* What `attnlab vectors` says of a mask, in the mask language and malloc'ed; NULL: it
 * is no word of these. */
enum attn_status attn_file_problem_words_mask(const struct attn_file_problem *files,
                                              const char *said, char **text,
                                              struct attn_error *err);

/* The bytes that the word `dense` speaks of: 1 = visible, and of a packed batch each document's own
 * pairs, [n,H,Lq,Lk].  `tensor` is changed where the file has them otherwise. */
enum attn_status attn_file_problem_words_bytes(struct attn_file_problem *files,
                                               const struct attn_file_tensor *bytes,
                                               struct attn_mask_tensor *tensor,
                                               struct attn_error *err);

/* ALiBi as `attnlab vectors` says it: where *slopes is NULL, both texts, or neither. */
enum attn_status attn_file_problem_words_alibi(struct attn_file_problem *files, const char **slopes,
                                               const char **align, struct attn_error *err);

/* The conventions of LSE that metadata declare: base 2, +inf for empty rows, none.  What the file
 * of a result says of itself wins over what is said beside the inputs; NULL: nothing more. */
void attn_file_problem_words_lse(const struct attn_file_problem *files,
                                 const struct attn_file *result, struct attn_claims *claims);

/* Why a tensor of the input plays no part: no input, no mask, and no result that a comparison
 * judges.  NULL: it plays one, or was left aside by --only.  *is_result: it may have been meant
 * as a result, so that a comparison which leaves it out has not judged all that it was given. */
const char *attn_file_problem_unused(const struct attn_file_problem *files,
                                     const struct attn_file_tensor *tensor, int *is_result);

/* Why a result of this name that somebody gave cannot be judged; NULL: it can.  from: its file, as
 * for attn_file_problem_words_lse. */
const char *attn_file_problem_why_not(const struct attn_file_problem *files,
                                      enum attn_output output, const struct attn_file *from);

int attn_file_problem_output_named(const char *name); /* an enum attn_output; -1: no output */

/* Whether this run computes an output; whether a comparison is to judge it (--only). */
int attn_file_problem_computes(const struct attn_file_problem *files, enum attn_output output);
int attn_file_problem_asks(const struct attn_file_problem *files, enum attn_output output);
int attn_file_problem_judges_bias(
    const struct attn_file_problem *files); /* some dbias is to be judged */

/* file_shape.c: extents of the problem from q, k, v; then of every other tensor against it. */
enum attn_status attn_file_problem_shapes(struct attn_file_problem *files, struct attn_error *err);

/* name, dtype, extents and bytes of an output; logical extents b, h, row, feature. */
void attn_file_problem_output_shape(const struct attn_file_problem *files, enum attn_output output,
                                    struct attn_file_tensor *tensor);

/* Which axes a tensor has: tokens and features (of the queries' heads, of the keys'); lse and dlse,
 * [B,H,L] in any layout; bias and dbias, [B,H,Lq,Lk] with stride 0 where they are broadcast. */
enum attn_file_problem_kind {
    ATTN_FILE_PROBLEM_QUERIES,
    ATTN_FILE_PROBLEM_KEYS,
    ATTN_FILE_PROBLEM_ROWS,
    ATTN_FILE_PROBLEM_PAIRS
};
enum attn_file_problem_kind attn_file_problem_kind_of(enum attn_output output);

struct attn_view attn_file_problem_view(const struct attn_file_problem *files,
                                        const struct attn_file_tensor *tensor,
                                        enum attn_file_problem_kind kind);
struct attn_cview attn_file_problem_cview(const struct attn_file_problem *files,
                                          const struct attn_file_tensor *tensor,
                                          enum attn_file_problem_kind kind);

/* file_run.c.  ENOMEM: with the price, the largest buffers and what there is. */
enum attn_status attn_file_problem_price(const struct attn_file_problem *files,
                                         struct attn_error *err);
enum attn_status attn_file_problem_run(struct attn_file_problem *files, struct attn_error *err);

/* Write result.safetensors, or one .npy for each output, into that folder. */
enum attn_status attn_file_problem_write(const struct attn_file_problem *files,
                                         struct attn_error *err);

/* file_compare.c: rows and keys that are compared: all up to 2048, else 64 that the hash chooses.
 * */
enum { ATTN_FILE_PROBLEM_ALL = 2048, ATTN_FILE_PROBLEM_SAMPLE = 64 };
int64_t attn_file_problem_compared(int64_t n);

/* What a comparison found: results beyond their bounds, and tensors that were given and could not
 * be judged.  Its exit status: 1, 2, or 0 where both are 0. */
struct attn_file_problem_found {
    int n_bad, n_unjudged;
};
int attn_file_problem_found_exit(const struct attn_file_problem_found *found);

/* Print the table of errors to stdout: every output of the job and beside its inputs, in the type
 * in which it is stored, and a line for each tensor that could not be judged. */
enum attn_status attn_file_problem_compare(const struct attn_file_problem *files,
                                           struct attn_file_problem_found *found,
                                           struct attn_error *err);

/* One such line. */
void attn_file_problem_unjudged(const struct attn_file_problem *files, const char *of,
                                const char *name, const char *why,
                                struct attn_file_problem_found *found);

#endif
