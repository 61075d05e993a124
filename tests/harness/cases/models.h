/* Models: the shapes that people run (models.def, or a config.json), and a few cases of each. */
#ifndef TESTS_HARNESS_CASES_MODELS_H
#define TESTS_HARNESS_CASES_MODELS_H

#include "tests/harness/inputs/case.h"

enum {
    ATTN_MODEL_HEADS,
    ATTN_MODEL_KV_HEADS,
    ATTN_MODEL_DIM,
    ATTN_MODEL_DV,
    ATTN_MODEL_KEYS,
    ATTN_MODEL_MASK,
    ATTN_MODEL_SCALE,
    ATTN_MODEL_SOFTCAP,
    ATTN_MODEL_DTYPE,
    ATTN_MODEL_VALUES
};
enum {
    ATTN_MODEL_CASES = 4, /* of each; the first is of the quick tier               */
    ATTN_MODELS = 0
#define ATTN_MODEL(...) +1
#include "tests/harness/cases/models.def"
#undef ATTN_MODEL
};

/* Values in the words of the flags of these names; "": the value that a command has without the
 * flag. */
struct attn_model {
    const char *name, *source, *value[ATTN_MODEL_VALUES], *field;
    int layers, windowed, latent; /* models.def */
};
extern const struct attn_model attn_models[ATTN_MODELS];
extern const char *const attn_model_flag[ATTN_MODEL_VALUES];

/* EINVAL names the nearest one. */
enum attn_status attn_model_find(const char *name, const struct attn_model **model,
                                 struct attn_error *err);

/* The model of a flag: NAME, or FILE, a config.json of Hugging Face whose name ends in .json, and
 * after either :KEY=VALUE,... for who asks.  model points into the struct, which is not copied. */
struct attn_model_given {
    struct attn_model model;
    const char *settings; /* "type=fp8,page=16"; "" */
    char name[256], text[ATTN_MODEL_VALUES][48];
};

/* EINVAL: as attn_model_find; a file without a field that is needed, or of a model whose layers are
 * no attention over all keys or a window. */
enum attn_status attn_model_open(const char *text, struct attn_model_given *given,
                                 struct attn_error *err);

/* model_file.c: of a file whose name is there. */
enum attn_status attn_model_read(struct attn_model_given *given, struct attn_error *err);

/* Case 0 has two tiles of 128 and a ragged tail; then come prefill, decode and backward.  Of
 * several kv heads two are kept, with up to 16 query heads each.  claims: enum attn_cap; the long
 * cases are asked in bf16, and a sink is there or V is a view of K, where that is claimed. */
struct attn_model_case {
    char name[48], text[ATTN_CASE_TEXT], why[96]; /* name: "shape-llama-3-8b-decode" */
};
void attn_model_case(const struct attn_model *model, int index, unsigned claims,
                     struct attn_model_case *c);

/* The index of the model that has a case of this name; -1: none. */
int attn_model_of_case(const char *name);

#endif
