/* Cases and results as files: for implementations that are programs, in any language.
 *
 *      CASES/manifest.json                  what the cases are, with every number of each
 *      CASES/NAME/inputs.safetensors        q k v [do] [dlse] [bias] [mask]
 *      OUT/NAME/result.safetensors          o lse [dq dk dv] [dbias], or result.npz, or one
 *                                           NAME/o.npy, ... each, or error.txt, changed.txt,
 *                                           or refused.txt
 *
 * vector_cases.c writes the former, vector_results.c reads the latter; docs/external.md is the
 * manual.  Nothing of the inputs is read back: a case string gives the same bits every time, so
 * results are judged on what the case says.
 */
#ifndef TESTS_HARNESS_SUBJECT_VECTOR_FILES_H
#define TESTS_HARNESS_SUBJECT_VECTOR_FILES_H

#include "tests/harness/base/files.h"
#include "tests/harness/subject/subject.h"

/* A manifest being written: open, then each case, then close. */
struct attn_vector_files_writer {
    const char *folder; /* borrowed */
    const struct attn_claims *claims;
    void *cases;        /* a JSON array */
    const char *scheme; /* of ranks, for which each case is written too (rank_steps.h); or NULL */
    int ranks, has_no_truth; /* has_no_truth: what ranks must hold is not written beside */
};
enum attn_status attn_vector_files_begin(const char *folder, const struct attn_claims *claims,
                                         struct attn_vector_files_writer *writer,
                                         struct attn_error *err);

/* Write the inputs of a case under a name, which becomes a folder. */
enum attn_status attn_vector_files_write(struct attn_vector_files_writer *writer, const char *name,
                                         const struct attn_setup *setup, struct attn_error *err);

/* Write the manifest; free in any case.  status: of the cases; when it is not ATTN_OK, there is no
 * manifest and it is returned. */
enum attn_status attn_vector_files_end(struct attn_vector_files_writer *writer,
                                       enum attn_status status, struct attn_error *err);

/* Write a whole folder: of n cases those that are claimed and, unless scheme is NULL, that the
 * scheme takes.  with_truth: with the tensors that its ranks must hold.  Sets `written` of each
 * case, and *written to their number.  A case that cannot be set up is not written either: it has
 * its verdict when it is judged. */
enum attn_status attn_vector_files_write_all(const char *folder, const struct attn_claims *claims,
                                             const char *scheme, int with_truth,
                                             struct attn_asked *asked, int n, int *written,
                                             struct attn_error *err);

/* A manifest read again. */
struct attn_vector_files_entry {
    const char *name, *text; /* of the folder; the case string */
};
struct attn_vector_files {
    struct attn_claims claims;
    const char *scheme; /* of ranks, or NULL; there until it is closed */
    int n;
    struct attn_vector_files_entry *entry;
    void *json; /* private */
};
enum attn_status attn_vector_files_open(const char *folder, struct attn_vector_files *files,
                                        struct attn_error *err);
void attn_vector_files_close(struct attn_vector_files *files);

/* 1: there is a folder of results for this case. */
int attn_vector_files_has(const char *folder, const char *name);

/* 1: everything that the case wants is there, or the program's own words why not. */
int attn_vector_files_done(const char *folder, const char *name, const struct attn_claims *claims,
                           const struct attn_case *c);

/* The words of a program, in the first line of OUT/NAME/error.txt, changed.txt (which inputs it has
 * changed) or refused.txt, in place of results.  ERROR and CHANGED, with what is to be said of it:
 * also words that cannot be read, several of the files, and a refusal beside results.  REFUSED: its
 * line as it stands, "" is none. */
enum attn_vector_files_words {
    ATTN_WORDS_NONE,
    ATTN_WORDS_ERROR,
    ATTN_WORDS_CHANGED,
    ATTN_WORDS_REFUSED
};
enum attn_vector_files_words attn_vector_files_words(const char *folder, const char *name,
                                                     char *text, size_t size);

/* The cases of another manifest for which wants(arg, name) is true, as a folder beside that of the
 * manifest: a manifest of these, and links to the inputs that are there. */
enum attn_status attn_vector_files_rest(const char *folder, const char *of,
                                        int (*wants)(void *arg, const char *name), void *arg,
                                        struct attn_error *err);

/* Fill the outputs of an open setup from OUT/NAME.  EINVAL with one line: something is missing, has
 * another shape or type, or cannot be read. */
enum attn_status attn_vector_files_read(const char *folder, const char *name,
                                        const struct attn_claims *claims, struct attn_setup *setup,
                                        struct attn_error *err);

/* The same for these slots (bits) alone, which may be inputs too. */
enum attn_status attn_vector_files_take(const char *folder, const char *name,
                                        const struct attn_claims *claims, unsigned slots,
                                        struct attn_setup *setup, struct attn_error *err);

/* Judge them: attn_judge with the declared precisions; an absent LSE is not compared. */
void attn_vector_files_judge(const struct attn_claims *claims, const struct attn_setup *setup,
                             struct attn_result *result);

/* ---- for both halves ------------------------------------------------------------------------- */

/* Where tokens lie in files and before a plug-in, if strides do not say it: with padding between
 * them, or in pages.  And the tensors that say so to the program: cu_seqlens_q and _k, then both
 * with _padded; or page_table and lengths. */
struct attn_vector_rows {
    int64_t
        *at[2]; /* of queries, of keys: the place of token b L + i, -1 for none; NULL: as strides
                          have it */
    int64_t tokens[2]; /* how many places there are */
    int64_t page;      /* places of a page, an axis of K and V; 0: there are none */
    struct attn_file_tensor given[4];
    int n_given;
};
struct attn_vector_tokens { /* of them: */
    const struct attn_problem *problem;
    const int64_t *k_stride, *v_stride; /* of 0 where batches share K and V, and then pages too */
    uint64_t seed;
};
struct attn_vector_tokens attn_vector_tokens_of(const struct attn_setup *setup);
enum attn_status attn_vector_rows_open(const struct attn_claims *claims,
                                       const struct attn_vector_tokens *tokens,
                                       struct attn_vector_rows *rows, struct attn_error *err);
void attn_vector_rows_close(struct attn_vector_rows *rows);

/* Of a result that is diagnosed: NaN, or rows without keys, and neither in the case itself, come
 * from padding or from slots behind the length, unless a model of a fault explains the numbers. */
void attn_vector_rows_diagnose(const struct attn_claims *claims, const struct attn_setup *setup,
                               struct attn_result *result);

/* How the tensor of a slot lies in files.  Axes that a bias broadcasts are there once. */
struct attn_vector_place {
    struct attn_file_tensor shape; /* without name and data */
    int64_t n[4], stride[4];
    const int64_t *rows; /* of struct attn_vector_rows; borrowed, or NULL */
};
struct attn_vector_place attn_vector_files_place(const struct attn_claims *claims,
                                                 const struct attn_vector_rows *rows,
                                                 const struct attn_tensor *t, int slot);

/* Where element at[] of the case is: at[] itself, or its token's place; 0: it is in no file. */
static inline int attn_vector_at(const struct attn_vector_place *x, const int64_t at[4],
                                 int64_t to[4])
{
    for (int a = 0; a < 4; a++)
        to[a] = at[a];
    if (x->rows == NULL)
        return 1;
    to[0] = 0;
    to[2] = x->rows[at[0] * x->n[2] + at[2]];
    return to[2] >= 0;
}

/* A contiguous copy for a file, whose data is to be freed. */
enum attn_status attn_vector_files_gather(const struct attn_claims *claims,
                                          const struct attn_vector_rows *rows,
                                          const struct attn_tensor *t, int slot,
                                          struct attn_file_tensor *to, struct attn_error *err);

/* The bytes of a mask, [B,H,Lq,Lk], or [1,H,Tq,Tk] over all tokens; data is to be freed. */
enum attn_status attn_vector_files_gather_mask(const struct attn_claims *claims,
                                               const struct attn_problem *problem,
                                               const struct attn_vector_rows *rows,
                                               struct attn_file_tensor *to, struct attn_error *err);

/* All inputs of a setup, to list[*n] and behind it: tensors, mask bytes, starts of documents. */
enum attn_status attn_vector_files_gather_all(const struct attn_claims *claims,
                                              const struct attn_setup *setup,
                                              struct attn_file_tensor *list, int *n,
                                              struct attn_error *err);

/* 1: the case asks for this output, and the claims have it. */
int attn_vector_files_wants(const struct attn_claims *claims, const struct attn_setup *setup,
                            enum attn_output o);

#endif
