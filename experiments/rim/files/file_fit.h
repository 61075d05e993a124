/* Results against the truth: which arithmetic they fit, and what is wrong where they fit none. */
#ifndef EXPERIMENTS_RIM_FILES_FILE_FIT_H
#define EXPERIMENTS_RIM_FILES_FILE_FIT_H

#include "experiments/rim/files/file_problem.h"
#include "tests/harness/judge/judge.h"

/* The results that are judged: of a spec, or given in files, in attnlab's conventions. */
struct attn_party {
    const char *of; /* "the file", ... */
    int given;
    struct attn_cview got[ATTN_OUTPUTS]; /* data == NULL: there is none */
    enum attn_dtype stored[ATTN_OUTPUTS];
    double *lse; /* the data of one that was in another convention */
};

/* By what: inputs and rows. */
struct attn_file_trial {
    const struct attn_files *files;
    struct attn_inputs inputs;
    struct attn_sample sample;
};

/* Results under one arithmetic. */
struct attn_fit {
    const char *word;             /* of the arithmetic */
    struct attn_result result;    /* PASS or FAIL; output[].name == NULL: not judged */
    int64_t silent[ATTN_OUTPUTS]; /* elements that cannot be judged */
    int64_t n_bad;                /* of all outputs */
};

enum { ATTN_FITS = 16 };
struct attn_fits {
    int n, best; /* the first that allows all, else the one that allows most */
    struct attn_fit of[ATTN_FITS];
};

/* A step of attn_files_open: what --arithmetic and --claims declare. */
enum attn_status attn_files_declared(struct attn_files *files, struct attn_error *err);

/* A spec's own arithmetic, or what is declared; else all sets of the storage type, up to the first
 * that allows all. */
enum attn_status attn_fits_find(const struct attn_file_trial *trial, const struct attn_party *party,
                                struct attn_fits *fits, struct attn_error *err);

/* 1: results may pass: all is within f32, within the declared arithmetic, or, in 16 bits, within
 * some set; 0: they fail. */
int attn_fits_pass(const struct attn_files *files, const struct attn_fits *fits);

/* The line that answers: rounding, and of which arithmetic, or a bug, in which rows, and why. */
void attn_fits_answer(const struct attn_file_trial *trial, const struct attn_party *party,
                      const struct attn_fits *fits);

#endif
