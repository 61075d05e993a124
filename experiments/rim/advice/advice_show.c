/* Advice, and the command that prints each price, in words or as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/advice/advice.h"
#include "experiments/table/row_table.h"

/* ---- the command ----------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *flag, const char *value)
{
    char word[1024];
    size_t used = strlen(text);
    attn_cli_quote(value, word, sizeof word);
    snprintf(text + used, size - used, "%s%s%s", flag, flag[0] != '\0' ? " " : "", word);
}

static void append_number(char *text, size_t size, const char *flag, double value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.0f", value);
    append(text, size, flag, digits);
}

/* Only what differs from what the command takes for granted. */
static void append_shape(char *text, size_t size, const struct attn_case *s)
{
    const struct {
        const char *flag;
        int64_t value, granted;
    } extent[] = {{" --length", s->n_query, -1},
                  {" --keys", s->n_key, s->n_query},
                  {" --batch", s->batch, 1},
                  {" --heads", s->heads, 1},
                  {" --kv-heads", s->kv_heads, s->heads},
                  {" --dim", s->d_key, 64},
                  {" --dv", s->d_value, s->d_key}};
    for (size_t e = 0; e < sizeof extent / sizeof *extent; e++)
        if (extent[e].value != extent[e].granted)
            append_number(text, size, extent[e].flag, (double)extent[e].value);
    if (strcmp(s->mask, "none") != 0)
        append(text, size, " --mask", s->mask);
    if (s->dtype != ATTN_F32)
        append(text, size, " --dtype", attn_dtype_name(s->dtype));
}

void attn_price_command(const struct attn_price_asked *asked, char *text, size_t size)
{
    char name[512], memory[32], params[64];
    double bytes = asked->memory->bytes;
    const struct attn_stack *stack = asked->stack;
    attn_spec_print(asked->spec, name, sizeof name);
    snprintf(text, size, "%s price ", attn_cli_program());
    append(text, size, "", name);
    append_shape(text, size, asked->c);
    if (asked->pass != ATTN_NEED_FORWARD)
        append(text, size, " --pass", attn_need_pass_name(asked->pass));
    if (stack->n > 0) {
        append_number(text, size, " --layers", (double)stack->n);
        append(text, size, " --save", attn_stack_save_name(stack->save));
    }
    if (stack->hidden > 0)
        append_number(text, size, " --hidden", (double)stack->hidden);
    snprintf(memory, sizeof memory, "%.0f%s", bytes, bytes < 1 << 20 ? "B" : "");
    if (asked->memory->is_device)
        append(text, size, " --memory", memory);
    snprintf(params, sizeof params, "%lld,%lld", (long long)asked->memory->params,
             (long long)asked->memory->param_bytes);
    if (asked->memory->params > 0)
        append(text, size, " --params", params);
}

/* ---- shown ----------------------------------------------------------------------------------- */

/* Where a change stands among the text's parts. */
enum part { KEEPS, CHANGES, NOTHING, REFUSED, PARTS };

static enum part part_of(const struct attn_advice *x)
{
    if (x->refused.status != ATTN_OK)
        return REFUSED;
    return x->brings <= 0 ? NOTHING : x->changes_result ? CHANGES : KEEPS;
}

static json_t *advice_json(const struct attn_price_asked *asked, struct attn_advice *x)
{
    char command[2048];
    const struct attn_price_asked changed = attn_advice_asked(asked, x);
    json_t *json = attn_price_asked_json(&changed);
    json_object_set_new(json, "change", json_string(x->what));
    if (x->refused.status != ATTN_OK) {
        json_object_set_new(json, "refused", json_string(x->refused.text));
        return json;
    }
    attn_price_command(&changed, command, sizeof command);
    if (x->lacks != NULL)
        json_object_set_new(
            json, "priced_only",
            json_sprintf("%s does not run in %s", x->lacks, attn_dtype_name(x->c.dtype)));
    json_object_set_new(json, "changes_result", json_boolean(x->changes_result));
    json_object_set_new(json, "needed_bytes", json_real(x->bytes));
    json_object_set_new(json, "brings_bytes", json_real(x->brings));
    json_object_set_new(
        json, "fits",
        isinf(asked->memory->bytes) ? json_null() : json_boolean(x->bytes <= asked->memory->bytes));
    json_object_set_new(json, "longest", x->longest < 0 ? json_null() : json_integer(x->longest));
    json_object_set_new(json, "command", json_string(command));
    return json;
}

/* Of what brings nothing, only what it needs then. */
static json_t *part_rows(const struct attn_price_asked *asked, struct attn_advices *advices,
                         enum part part)
{
    json_t *rows = json_array();
    for (int i = 0; i < advices->n; i++) {
        if (part_of(&advices->at[i]) != part)
            continue;
        json_t *row = advice_json(asked, &advices->at[i]);
        json_array_append_new(rows, part != NOTHING
                                        ? json_incref(row)
                                        : json_pack("{s:O,s:O}", "change",
                                                    json_object_get(row, "change"), "needed_bytes",
                                                    json_object_get(row, "needed_bytes")));
        json_decref(row);
    }
    return rows;
}

static void print_text(const struct attn_price_asked *asked, struct attn_advices *advices)
{
    static const char *const title[PARTS] = {"with the same result", "with another result",
                                             "bringing nothing", "refused"};
    static const struct attn_column column[] = {{"brings_bytes", "less", ATTN_UNIT_BYTES},
                                                {"needed_bytes", "needs", ATTN_UNIT_BYTES},
                                                {"fits", "fits", ATTN_UNIT_WORDS},
                                                {"longest", "longest", ATTN_UNIT_GROUPED},
                                                {"change", "change", ATTN_UNIT_WORDS},
                                                {"priced_only", "priced only", ATTN_UNIT_WORDS},
                                                {"refused", "why", ATTN_UNIT_WORDS},
                                                {"command", "", ATTN_UNIT_CODE | ATTN_UNIT_BELOW},
                                                {.key = NULL}};
    char needs[32], has[32], longest[32];
    const struct attn_memory *memory = asked->memory;
    attn_price_print_asked(asked);
    printf("\n  needs %s", attn_price_bytes(advices->bytes, needs));
    if (!isinf(memory->bytes))
        printf(", %s in %s %s", advices->bytes <= memory->bytes ? "fits" : "does not fit",
               memory->is_device ? "a device of" : "this machine's",
               attn_price_bytes(memory->bytes, has));
    if (advices->longest >= 0)
        printf("; longest %s", attn_cli_grouped(advices->longest, longest));
    attn_price_print_isa(asked->spec, "; ", "");
    putchar('\n');
    attn_price_print_beside(asked);
    for (int part = 0; part < PARTS; part++) {
        json_t *rows = part_rows(asked, advices, (enum part)part);
        if (json_array_size(rows) > 0) {
            printf("\n%s:\n", title[part]);
            attn_table_print(stdout, ATTN_TABLE_TEXT, column, rows);
        }
        json_decref(rows);
    }
}

int attn_price_advise(const struct attn_price_asked *asked, json_t *all)
{
    struct attn_error err = {0};
    struct attn_advices *advices = attn_cli_need(calloc(1, sizeof *advices));
    enum attn_status status = attn_price_advices(asked, advices, &err);
    if (status != ATTN_OK)
        attn_price_show_refused(asked, err.text, all);
    else if (all == NULL)
        print_text(asked, advices);
    else {
        json_t *json = attn_price_asked_json(asked), *list = json_array();
        for (int i = 0; i < advices->n; i++)
            json_array_append_new(list, advice_json(asked, &advices->at[i]));
        json_object_set_new(json, "needed_bytes", json_real(advices->bytes));
        json_object_set_new(json, "available_bytes", attn_cli_real(asked->memory->bytes));
        json_object_set_new(json, "longest",
                            advices->longest < 0 ? json_null() : json_integer(advices->longest));
        json_object_set_new(json, "advice", list);
        json_array_append_new(all, json);
    }
    free(advices);
    return attn_cli_status(status);
}
