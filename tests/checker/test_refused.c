/* Texts that none of our languages accepts: every text of refused.def, by its reader; and files of
 * models, of which more are right. */
#include <stdlib.h>
#include <string.h>

#include "optimized/registry.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/refused.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/bound/rules.h"
#include "tests/harness/cases/claims.h"
#include "tests/harness/cases/models.h"
#include "tests/suites.h"

SUITE(refused, .open = scratch_open, .close = scratch_close);

static enum attn_status read_case(const char *text, struct attn_error *err)
{
    struct attn_case c;
    return attn_case_parse(text, &c, err);
}

/* A case that can be read, and of which no tensors can be made. */
static enum attn_status read_setup(const char *text, struct attn_error *err)
{
    struct attn_setup setup;
    struct attn_case c = case_of(text);
    return attn_setup_open(&c, &setup, err);
}

static enum attn_status read_spec(const char *text, struct attn_error *err)
{
    struct attn_spec spec;
    return attn_spec_parse(text, &spec, err);
}

static enum attn_status read_mask_of(const char *text, struct attn_mask_shape shape,
                                     struct attn_error *err)
{
    struct attn_mask *mask = (struct attn_mask *)&shape;
    enum attn_status status = attn_mask_parse(text, &shape, NULL, &mask, err);
    ck_assert_ptr_null(mask);
    return status;
}

static enum attn_status read_mask(const char *text, struct attn_error *err)
{
    return read_mask_of(text, (struct attn_mask_shape){2, 1, 6, 8}, err);
}

/* A mask of 24 tokens, as the grids hold. */
static enum attn_status read_grid(const char *text, struct attn_error *err)
{
    return read_mask_of(text, (struct attn_mask_shape){1, 1, 24, 24}, err);
}

static enum attn_status read_rule(const char *text, struct attn_error *err)
{
    struct attn_rule_choice choice;
    return attn_rule_parse(text, &choice, err);
}

static enum attn_status read_claims(const char *text, struct attn_error *err)
{
    struct attn_claims claims;
    return attn_claims_read(scratch_put("claims.json", text, strlen(text)), &claims, err);
}

static enum attn_status read_model(const char *text, struct attn_error *err)
{
    struct attn_model_given given;
    return attn_model_open(scratch_put("config.json", text, strlen(text)), &given, err);
}

static const struct {
    enum attn_status (*read)(const char *text, struct attn_error *err);
    const char *text, *words;
} refused[] = {
#define REFUSED(language, text, words) {read_##language, text, words},
#include "tests/checker/refused.def"
#undef REFUSED
};

TEST(each_is_refused)
{
    for (int n = 0; n < COUNT(refused); n++) {
        struct attn_error err = {0};
        ck_refusal(refused[n].read(refused[n].text, &err), ATTN_EINVAL, &err, refused[n].words);
        ck_assert_int_eq(refused[n].read(refused[n].text, NULL), ATTN_EINVAL);
    }
}

/* Files of models that are read, each with something of its own: where a field stands, and which
 * layers have the window. */
TEST(models_are_read)
{
#define TEN "\"num_hidden_layers\": 10, \"num_attention_heads\": 8, \"sliding_window\": 64, "
    static const struct {
        const char *json, *kv_heads, *dim, *dtype;
        int windowed;
    } file[] = {
        {"{" TEN "\"head_dim\": 16}", "8", "16", "bf16", 10},
        {"{" TEN "\"hidden_size\": 64, \"multi_query\": true, \"dtype\": \"float16\"}", "1", "8",
         "f16", 10},
        {"{" TEN "\"head_dim\": 16, \"use_sliding_window\": false}", "8", "16", "bf16", 0},
        {"{" TEN "\"head_dim\": 16, \"max_window_layers\": 7}", "8", "16", "bf16", 3},
        {"{" TEN "\"head_dim\": 16, \"sliding_window_pattern\": 4}", "8", "16", "bf16", 8},
        {"{" TEN "\"head_dim\": 16, \"model_type\": \"gemma2\"}", "8", "16", "bf16", 5},
        {"{\"torch_dtype\": \"float32\", \"text_config\": {" TEN
         "\"head_dim\": 16, \"model_type\": \"gemma3_text\", \"num_key_value_heads\": 2}}",
         "2", "16", "f32", 9},
        {"{\"n_layer\": 10, \"n_head\": 4, \"n_embd\": 32, \"head_dim\": null}", "4", "8", "bf16",
         0},
    };
    for (int n = 0; n < COUNT(file); n++) {
        struct attn_model_given given;
        struct attn_error err = {0};
        const char *path = scratch_put("config.json", file[n].json, strlen(file[n].json));
        ck_assert_msg(attn_model_open(path, &given, &err) == ATTN_OK, "%s", err.text);
        const char *const *value = given.model.value;
        ck_assert_str_eq(value[ATTN_MODEL_KV_HEADS], file[n].kv_heads);
        ck_assert_str_eq(value[ATTN_MODEL_DIM], file[n].dim);
        ck_assert_str_eq(value[ATTN_MODEL_DTYPE], file[n].dtype);
        ck_assert_str_eq(value[ATTN_MODEL_MASK],
                         file[n].windowed > 0 ? "causal(br)&window(63,0,br)" : "causal(br)");
        ck_assert_int_eq(given.model.layers, 10);
        ck_assert_int_eq(given.model.windowed, file[n].windowed);
    }
}

/* A million characters in any place: an error of one line that still says what would work. */
TEST(hostile_lengths)
{
    enum { LONG = 1000000 };
    static const struct {
        const char *before;
        char fill;
        const char *words;
    } place[] = {{"", 'x', "there are: dense"},
                 {"", '%', "there are: dense"},
                 {"dense", 'e', "there are: dense"},
                 {"dense:", 'm', "NAME=VALUE is needed"},
                 {"dense:", '=', "it has: mask"},
                 {"dense:mask=int32", '2', "float4d"},
                 {"dense:mask=int32,mask", 'k', "NAME=VALUE"},
                 {"tiled-textbook:br=1", '0', "from 1 to 4096"},
                 {"ring:local=", 'd', "done by one of: dense"},
                 {"ring:local=", '(', "a ')' is missing"},
                 {"ring:local=(tiled:few", ',', "a ')' is missing"}};
    char *text = malloc(LONG + 64);
    ck_assert_ptr_nonnull(text);
    for (int n = 0; n < COUNT(place); n++) {
        struct attn_error err = {0};
        size_t used = strlen(place[n].before);
        memcpy(text, place[n].before, used);
        memset(text + used, place[n].fill, LONG);
        text[used + LONG] = '\0';
        ck_refusal(read_spec(text, &err), ATTN_EINVAL, &err, place[n].words);
    }
    free(text);
}
