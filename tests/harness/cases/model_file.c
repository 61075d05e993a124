/* A model from the config.json that Hugging Face keeps with its weights; see models.h.
 *
 * The fields have the names of transformers' configuration classes; a few older models have others.
 * A field that is null is not there.  Defaults that stand only in the classes are not known here,
 * but for the patterns of Gemma 2 and 3: a field that is needed and lacking is an error. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/base/fileio.h"
#include "tests/harness/cases/models.h"

enum { MOST_BYTES = 1 << 20, MOST = 1 << 20 };

struct config {
    const char *path;
    const json_t *root, *top; /* of the model that reads text, and of all */
    struct attn_error *err;
};

/* The first of these names that is there, and not null. */
static const json_t *field(const struct config *x, const char *const *name)
{
    for (; *name != NULL; name++) {
        const json_t *value = json_object_get(x->root, *name);
        if (value != NULL && !json_is_null(value))
            return value;
    }
    return NULL;
}
#define FIELD(x, ...) field(x, (const char *const[]){__VA_ARGS__, NULL})

static const char *word(const struct config *x, const char *name)
{
    const char *text = json_string_value(FIELD(x, name));
    return text != NULL ? text : "";
}

/* A whole number from 1 up.  preset: where there is no such field; 0: one is needed. */
static enum attn_status count(const struct config *x, const json_t *value, const char *name,
                              int64_t preset, int64_t *to)
{
    *to = value == NULL ? preset : json_is_integer(value) ? json_integer_value(value) : 0;
    if (value == NULL && preset == 0)
        return attn_fault(x->err, ATTN_EINVAL, x->path,
                          "no field %s, which a config.json of Hugging Face has, at the top or in "
                          "text_config; if the model's class has a default, write it into the file",
                          name);
    if (*to < 1 || *to > MOST)
        return attn_fault(x->err, ATTN_EINVAL, x->path,
                          "%s is not a whole number from 1 to 1048576", name);
    return ATTN_OK;
}

/* ---- what has no price ----------------------------------------------------------------------- */

static enum attn_status check_known(const struct config *x)
{
    static const struct {
        const char *field, *is;
    } foreign[] = {{"attention_chunk_size", "attention in chunks"},
                   {"attn_layer_period", "layers without attention"},
                   {"hybrid_override_pattern", "layers without attention"},
                   {"layers_block_type", "layers without attention"},
                   {"linear_num_key_heads", "linear attention"},
                   {"index_topk", "a learned selection of keys"},
                   {"num_kv_shared_layers", "layers that share a cache"}};
    for (size_t f = 0; f < sizeof foreign / sizeof *foreign; f++)
        if (FIELD(x, foreign[f].field) != NULL)
            return attn_fault(x->err, ATTN_EINVAL, x->path,
                              "%s: %s has no price here; layers that see all keys or a window of "
                              "them have, also with latent keys",
                              foreign[f].field, foreign[f].is);
    if (json_is_true(FIELD(x, "is_encoder_decoder")) || strstr(word(x, "model_type"), "bert"))
        return attn_fault(x->err, ATTN_EINVAL, x->path,
                          "%s is no model of a decoder alone, which keeps a cache",
                          word(x, "model_type"));
    return ATTN_OK;
}

/* ---- layers with a window -------------------------------------------------------------------- */

/* "layer_types": a word for each layer. */
static enum attn_status count_types(const struct config *x, const json_t *types, int64_t *windowed)
{
    *windowed = 0;
    for (size_t n = 0; n < json_array_size(types); n++) {
        const char *type = json_string_value(json_array_get(types, n));
        if (type != NULL && strcmp(type, "sliding_attention") == 0)
            ++*windowed;
        else if (type == NULL || strcmp(type, "full_attention") != 0)
            return attn_fault(x->err, ATTN_EINVAL, x->path,
                              "layer_types[%zu] is '%.40s': full_attention and sliding_attention "
                              "have a price",
                              n, type != NULL ? type : "no text");
    }
    return ATTN_OK;
}

/* One layer in this many sees all keys, the last of them; 0: the file says no pattern. */
static enum attn_status read_pattern(const struct config *x, int64_t *every)
{
    const json_t *value = FIELD(x, "sliding_window_pattern", "_sliding_window_pattern");
    const char *type = word(x, "model_type");
    *every = strncmp(type, "gemma2", 6) == 0 ? 2 : strncmp(type, "gemma3", 6) == 0 ? 6 : 0;
    return value != NULL ? count(x, value, "sliding_window_pattern", 0, every) : ATTN_OK;
}

/* The window, 0 without one, and how many layers have it. */
static enum attn_status read_windows(const struct config *x, int64_t layers, int64_t *window,
                                     int64_t *windowed)
{
    const json_t *given = FIELD(x, "sliding_window"), *types = FIELD(x, "layer_types"),
                 *first = FIELD(x, "max_window_layers"); /* of Qwen: full ones come first */
    int64_t every = 0, full;
    enum attn_status status = ATTN_OK;
    *windowed = *window = 0;
    if (json_is_false(FIELD(x, "use_sliding_window")))
        return ATTN_OK;
    if (types != NULL && json_array_size(types) != (size_t)layers)
        return attn_fault(x->err, ATTN_EINVAL, x->path,
                          "layer_types has %zu words for %lld layers: one for each is needed",
                          json_array_size(types), (long long)layers);
    if (types != NULL)
        status = count_types(x, types, windowed);
    if (status != ATTN_OK || (types != NULL ? *windowed == 0 : given == NULL))
        return status;
    status = count(x, given, "sliding_window", 0, window);
    if (types != NULL || status != ATTN_OK)
        return status;
    status = read_pattern(x, &every);
    full = every > 0 ? layers / every : first != NULL ? json_integer_value(first) : 0;
    *windowed = layers - (full < layers ? full : layers);
    return status;
}

/* ---- the shape ------------------------------------------------------------------------------- */

struct shape {
    int64_t layers, heads, kv_heads, d, dv, latent, window, windowed;
};

/* DeepSeek's latent keys: the cache has one vector, the problem is that of all heads. */
static enum attn_status read_latent(const struct config *x, struct shape *s)
{
    int64_t rank, rope, rest;
    enum attn_status status = count(x, FIELD(x, "kv_lora_rank"), "kv_lora_rank", 0, &rank);
    if (status == ATTN_OK)
        status = count(x, FIELD(x, "qk_rope_head_dim"), "qk_rope_head_dim", 0, &rope);
    if (status == ATTN_OK)
        status = count(x, FIELD(x, "qk_nope_head_dim"), "qk_nope_head_dim", 0, &rest);
    if (status == ATTN_OK)
        status = count(x, FIELD(x, "v_head_dim"), "v_head_dim", 0, &s->dv);
    if (status != ATTN_OK)
        return status;
    s->d = rest + rope;
    s->kv_heads = s->heads;
    s->latent = rank + rope;
    return ATTN_OK;
}

static enum attn_status read_heads(const struct config *x, struct shape *s)
{
    const json_t *width = FIELD(x, "hidden_size", "n_embd", "d_model");
    const char *kv = "num_key_value_heads";
    int64_t hidden;
    enum attn_status status = count(x, FIELD(x, "num_attention_heads", "n_head", "n_heads"),
                                    "num_attention_heads", 0, &s->heads);
    if (status != ATTN_OK || FIELD(x, "kv_lora_rank") != NULL)
        return status == ATTN_OK ? read_latent(x, s) : status;
    if (json_is_true(FIELD(x, "multi_query")) &&
        !json_is_true(FIELD(x, "new_decoder_architecture")))
        s->kv_heads = 1; /* Falcon */
    else
        status = count(x, FIELD(x, kv, "num_kv_heads"), kv, s->heads, &s->kv_heads);
    if (status == ATTN_OK && s->heads % s->kv_heads != 0)
        return attn_fault(x->err, ATTN_EINVAL, x->path, "%lld heads do not share %lld kv heads",
                          (long long)s->heads, (long long)s->kv_heads);
    if (status == ATTN_OK && FIELD(x, "head_dim") == NULL && width != NULL) {
        status = count(x, width, "hidden_size", 0, &hidden);
        s->d = hidden / s->heads;
        if (status == ATTN_OK && hidden % s->heads != 0)
            return attn_fault(x->err, ATTN_EINVAL, x->path,
                              "hidden_size %lld is no multiple of %lld heads: head_dim would work",
                              (long long)hidden, (long long)s->heads);
    } else if (status == ATTN_OK)
        status = count(x, FIELD(x, "head_dim"), "head_dim", 0, &s->d);
    s->dv = s->d;
    return status;
}

/* The values of the flags, as they would be given. */
static void write_values(const struct config *x, const struct shape *s, struct attn_model_given *to)
{
    const int64_t number[] = {s->heads, s->kv_heads, s->d, s->dv};
    const struct config all = {.root = x->top};
    const json_t *given = FIELD(x, "torch_dtype", "dtype");
    const char *type =
        json_string_value(given != NULL ? given : FIELD(&all, "torch_dtype", "dtype"));
    double scalar = json_number_value(FIELD(x, "query_pre_attn_scalar")),
           cap = json_number_value(FIELD(x, "attn_logit_softcapping"));
    memset(to->text, 0, sizeof to->text);
    for (int n = 0; n < 4; n++)
        snprintf(to->text[n], sizeof *to->text, "%lld", (long long)number[n]);
    if (s->windowed > 0)
        snprintf(to->text[ATTN_MODEL_MASK], sizeof *to->text, "causal(br)&window(%lld,0,br)",
                 (long long)s->window - 1);
    else
        snprintf(to->text[ATTN_MODEL_MASK], sizeof *to->text, "causal(br)");
    if (scalar > 0)
        snprintf(to->text[ATTN_MODEL_SCALE], sizeof *to->text, "%.17g", 1 / sqrt(scalar));
    if (cap > 0)
        snprintf(to->text[ATTN_MODEL_SOFTCAP], sizeof *to->text, "%.17g", cap);
    snprintf(to->text[ATTN_MODEL_DTYPE], sizeof *to->text, "%s",
             type != NULL && strcmp(type, "float16") == 0   ? "f16"
             : type != NULL && strcmp(type, "float32") == 0 ? "f32"
                                                            : "bf16");
    to->model = (struct attn_model){.name = to->name,
                                    .source = to->name,
                                    .field = "",
                                    .layers = (int)s->layers,
                                    .windowed = (int)s->windowed,
                                    .latent = (int)s->latent};
    for (int n = 0; n < ATTN_MODEL_VALUES; n++)
        to->model.value[n] = to->text[n];
}

static enum attn_status read_root(struct config *x, struct attn_model_given *to)
{
    struct shape s = {0};
    const json_t *text = json_object_get(x->root, "text_config");
    enum attn_status status = check_known(x);
    if (status == ATTN_OK && json_is_object(text)) {
        x->root = text;
        status = check_known(x);
    }
    if (status == ATTN_OK)
        status = count(x, FIELD(x, "num_hidden_layers", "n_layer", "n_layers"), "num_hidden_layers",
                       0, &s.layers);
    if (status == ATTN_OK)
        status = read_heads(x, &s);
    if (status == ATTN_OK)
        status = read_windows(x, s.layers, &s.window, &s.windowed);
    if (status == ATTN_OK)
        write_values(x, &s, to);
    return status;
}

enum attn_status attn_model_read(struct attn_model_given *given, struct attn_error *err)
{
    struct config x = {.path = given->name, .err = err};
    json_error_t why;
    char *text, said[80];
    enum attn_status status = attn_read_text(given->name, ATTN_READ_GIVEN, MOST_BYTES, &text, err);
    if (status != ATTN_OK)
        return status;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    free(text);
    x.root = x.top = root;
    if (!json_is_object(root))
        status = attn_fault(err, ATTN_EINVAL, given->name,
                            "no object of JSON%s%s: a config.json of Hugging Face would work",
                            root == NULL ? ": " : "",
                            root == NULL ? attn_cleaned(why.text, said, sizeof said) : "");
    else
        status = read_root(&x, given);
    json_decref(root);
    return status;
}
