/* Models: the shapes that people run (models.def), and a few cases of each. */
#ifndef TESTS_HARNESS_CASES_MODELS_H
#define TESTS_HARNESS_CASES_MODELS_H

#include "tests/harness/cases/cases.h"

enum {
    ATTN_MODEL_VALUES = 8, /* heads, kv-heads, dim, dv, keys, mask, scale, softcap */
    ATTN_MODEL_CASES = 4,  /* of each; the first is of the quick tier               */
    ATTN_MODELS = 0
#define ATTN_MODEL(...) +1
#include "tests/harness/cases/models.def"
#undef ATTN_MODEL
};

/* Values as the flags have them that are called so; "": what a command has without the flag. */
struct attn_model {
    const char *name, *source, *value[ATTN_MODEL_VALUES], *bias;
};
extern const struct attn_model attn_models[ATTN_MODELS];
extern const char *const attn_model_flag[ATTN_MODEL_VALUES];

/* EINVAL names the nearest one. */
enum attn_status attn_model_find(const char *name, const struct attn_model **model,
                                 struct attn_error *err);

/* Two tiles of 128 and a ragged tail; then prefill, decode and backward.  Two kv heads stay of
 * several, and as many heads of each, up to 16.  has_bf16: is claimed; the long cases are asked in
 * it. */
struct attn_model_case {
    char name[48], text[ATTN_CASE_TEXT], why[96]; /* name: "shape-llama-3-8b-decode" */
};
void attn_model_case(const struct attn_model *model, int index, int has_bf16,
                     struct attn_model_case *c);

/* The number of the model whose case is called so; -1: none. */
int attn_model_of_case(const char *name);

#endif
