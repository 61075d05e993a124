/* See flags.h. */
#include "experiments/cli/flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "optimized/registry.h"
#include "optimized/simd/isa.h"
#include "ref/mask/nearest.h"
#include "tests/harness/cases/models.h"
#include "version.h"

static const struct {
    const char *name;
    enum attn_flag_kind kind;
    const char *value;
    double least, most;
    const char *help;
} defined[] = {
    [ATTN_FLAG_END] = {"", 0, "", 0, 0, ""},
#define ATTN_FLAG(id, name, kind, value, least, most, help) \
    [ATTN_FLAG_##id] = {name, ATTN_KIND_##kind, value, least, most, help},
#include "experiments/cli/flags.def"
#undef ATTN_FLAG
};

static enum attn_flag_kind kind_of(const struct attn_flag_use *use)
{
    return use->kind != ATTN_KIND_AS_DEFINED ? use->kind : defined[use->flag].kind;
}

struct attn_flag_shown attn_flag_show(const struct attn_flag_use *use)
{
    if (use->flag == ATTN_FLAG_TITLE)
        return (struct attn_flag_shown){"", "", use->help, "", 0};
    return (struct attn_flag_shown){
        defined[use->flag].name, use->value != NULL ? use->value : defined[use->flag].value,
        use->help != NULL ? use->help : defined[use->flag].help,
        use->preset != NULL ? use->preset : "", kind_of(use) == ATTN_KIND_WORD};
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Which of the words "a|b|c"; -1: none. */
static int word_of(const char *words, const char *text)
{
    size_t length = strlen(text);
    for (int index = 0;; index++, words++) {
        size_t n = strcspn(words, "|");
        if (n == length && memcmp(words, text, n) == 0)
            return index;
        words += n;
        if (*words == '\0')
            return -1;
    }
}

static int add(struct attn_cli_list *list, const char *flag, const char *value)
{
    if (list->n == sizeof list->at / sizeof *list->at)
        return 0;
    list->at[list->n].flag = flag;
    list->at[list->n++].value = value;
    return 1;
}

/* Several with ';' between them, cut up where they stand; 0 when one is empty. */
static int add_items(struct attn_cli_list *list, const char *flag, char *text)
{
    for (char *item; (item = strsep(&text, ";")) != NULL;)
        if (item[strspn(item, " \t")] == '\0' || !add(list, flag, item))
            return 0;
    return 1;
}

/* A value to its place; 0 when it is none. */
static int store(const struct attn_flag_use *use, char *value, void *to)
{
    const char *name = defined[use->flag].name;
    double low = defined[use->flag].least, high = defined[use->flag].most;
    void *place = (char *)to + use->to;
    switch (kind_of(use)) {
    case ATTN_KIND_SWITCH:
        return *(int *)place = 1;
    case ATTN_KIND_TEXT:
        return (*(const char **)place = value) != NULL;
    case ATTN_KIND_LIST:
    case ATTN_KIND_ONCE:
        return add(place, name, value);
    case ATTN_KIND_ITEMS:
        return add_items(place, name, value);
    case ATTN_KIND_COUNT:
        return attn_cli_count(value, (int64_t)low, (int64_t)high, place);
    case ATTN_KIND_REAL:
    case ATTN_KIND_POSITIVE: {
        double x;
        if (!attn_cli_double(value, &x) || !isfinite(x) || x < low || (high > 0 && x > high) ||
            (kind_of(use) == ATTN_KIND_POSITIVE && x <= 0))
            return 0;
        *(double *)place = x;
        return 1;
    }
    case ATTN_KIND_WORD:
        *(int *)place = word_of(attn_flag_show(use).value, value);
        return *(int *)place >= 0;
    case ATTN_KIND_AS_DEFINED:
        break;
    }
    return 0;
}

/* "text, md or json" of "text|md|json". */
static void enumerate(const char *words, char *text, size_t size)
{
    size_t n = 0;
    for (const char *at = words; *at != '\0' && n + 8 < size; at++)
        if (*at == '|')
            n += (size_t)snprintf(text + n, size - n, strchr(at + 1, '|') != NULL ? ", " : " or ");
        else
            text[n++] = *at;
    snprintf(text + n, size - n, " would work");
}

/* Refuse a value, and say which values the flag has. */
static int refuse(const struct attn_flag_use *use, const char *value)
{
    const struct attn_flag_shown shown = attn_flag_show(use);
    enum attn_flag_kind kind = kind_of(use);
    char wants[160] = "one item or several with ';' between them is needed, 256 at most";
    double least = defined[use->flag].least, most = defined[use->flag].most;
    size_t n = 0;
    if (kind == ATTN_KIND_WORD)
        enumerate(shown.value, wants, sizeof wants - 16);
    else if (kind == ATTN_KIND_POSITIVE)
        snprintf(wants, sizeof wants, "a number above 0 is needed");
    else if (kind == ATTN_KIND_COUNT)
        n = (size_t)snprintf(wants, sizeof wants, "a whole number from %.0f", least);
    else if (kind == ATTN_KIND_REAL)
        n = (size_t)snprintf(wants, sizeof wants, "a number from %g", least);
    else if (kind == ATTN_KIND_LIST || kind == ATTN_KIND_ONCE)
        snprintf(wants, sizeof wants, "256 of them at most");
    if (n > 0 && most > 0)
        snprintf(wants + n, sizeof wants - n, " to %g is needed", most);
    else if (n > 0)
        snprintf(wants + n, sizeof wants - n, " up is needed");
    return attn_cli_fail(ATTN_EXIT_USAGE, "--%s '%.100s': %s", shown.name, value, wants);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int is_repeatable(const struct attn_flag_use *use)
{
    return kind_of(use) == ATTN_KIND_LIST || kind_of(use) == ATTN_KIND_ITEMS;
}

/* The flag that a word "--name" or "--name=value" spells out; NULL: none. */
static const struct attn_flag_use *find(const struct attn_cli_command *command, const char *word)
{
    size_t n = strcspn(word, "=");
    for (const struct attn_flag_use *use = command->flags; use->flag != ATTN_FLAG_END; use++) {
        if (use->flag == ATTN_FLAG_TITLE || strncmp(word, "--", 2) != 0)
            continue;
        const char *name = defined[use->flag].name;
        if (strlen(name) == n - 2 && memcmp(name, word + 2, n - 2) == 0 &&
            (word[n] == '\0' || kind_of(use) != ATTN_KIND_SWITCH))
            return use;
    }
    return NULL;
}

/* Is the word an option of a SPEC?  `ring --ranks 4` is ring:ranks=4. */
static int is_option(const char *word, size_t n)
{
    for (int i = 0; i < attn_impl_count(); i++) {
        const struct attn_option *o = attn_impl_at(i)->options;
        for (; o != NULL && o->name != NULL; o++)
            if (strlen(o->name) == n && strncmp(o->name, word, n) == 0)
                return 1;
    }
    return 0;
}

/* Flags of other programs, and how attnlab says the same; command "": of every command. */
static const char *otherwise(const char *command, const char *word)
{
    static const char *const known[][3] = {
        {"", "--color", "colours go to a terminal alone, and NO_COLOR=1 turns them off"},
        {"", "--colour", "colours go to a terminal alone, and NO_COLOR=1 turns them off"},
        {"help", "-v", "attnlab --version says it"},
        {"check", "--len", "extents are of a case: --case b1h2q9d8:none:f32:normal:s1"},
        {"check", "--length", "extents are of a case: --case b1h2q9d8:none:f32:normal:s1"}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if ((known[k][0][0] == '\0' || strcmp(known[k][0], command) == 0) &&
            strcmp(known[k][1], word) == 0)
            return known[k][2];
    return NULL;
}

/* The flag that begins so, or the nearest one; of -v that is --verbose. */
static int no_such_flag(const struct attn_cli_command *command, const char *word)
{
    char meant[64], begins[64] = "", names[64][24];
    size_t n = strcspn(word, "="), dashes = strspn(word, "-");
    struct attn_nearest nearest = attn_nearest_begin(word, n);
    int at = 0, begun = 0;
    for (const struct attn_flag_use *use = command->flags; use->flag != ATTN_FLAG_END; use++) {
        if (use->flag == ATTN_FLAG_TITLE || at == 64)
            continue;
        snprintf(names[at], sizeof *names, "--%s", defined[use->flag].name);
        if (n > dashes && strncmp(names[at] + 2, word + dashes, n - dashes) == 0 && begun++ == 0)
            snprintf(begins, sizeof begins, " (did you mean %s?)", names[at]);
        attn_nearest_offer(&nearest, names[at++]);
    }
    if (otherwise(command->name, word) != NULL)
        return attn_cli_fail(ATTN_EXIT_USAGE, "%.60s: no such flag; %s", word,
                             otherwise(command->name, word));
    if (begun == 0 && is_option(word + dashes, n - dashes))
        return attn_cli_fail(ATTN_EXIT_USAGE,
                             "%.60s: no such flag; options are part of a SPEC: ring:ranks=4 "
                             "(attnlab list)",
                             word);
    return attn_cli_fail(ATTN_EXIT_USAGE, "%.60s: no such flag%s; see attnlab %s --help", word,
                         begun > 0 ? begins : attn_nearest_text(&nearest, meant), command->name);
}

/* An extent of 0 is allowed, and seldom meant. */
static void note_zero(const struct attn_flag_use *use, const char *value)
{
    const int is_extent = use->flag == ATTN_FLAG_LENGTH || use->flag == ATTN_FLAG_KEYS ||
                          use->flag == ATTN_FLAG_BATCH || use->flag == ATTN_FLAG_HEADS ||
                          use->flag == ATTN_FLAG_DIM || use->flag == ATTN_FLAG_DV;
    for (const char *at = value; is_extent && at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strcmp(at, "0") == 0 || strncmp(at, "0,", 2) == 0)
            fprintf(stderr, "note: --%s 0: this extent is 0, and tensors that have it are empty\n",
                    defined[use->flag].name);
    }
}

/* One flag at argv[at]; how many words it took, or 0 after a message.  given: the values before. */
static int take(const struct attn_cli_command *command, char **argv, int at, const char **given,
                void *to)
{
    const struct attn_flag_use *use = find(command, argv[at]);
    if (use == NULL)
        return no_such_flag(command, argv[at]), 0;
    const char *name = defined[use->flag].name, **before = &given[use - command->flags];
    int is_switch = kind_of(use) == ATTN_KIND_SWITCH;
    char *equals = strchr(argv[at], '=');
    char *value = is_switch ? argv[at] : equals != NULL ? equals + 1 : argv[at + 1];
    if (value == NULL) /* argv[argc] */
        return attn_cli_fail(ATTN_EXIT_USAGE, "--%s needs a value (attnlab %s --help)", name,
                             command->name),
               0;
    if (*before != NULL && !is_repeatable(use) && !is_switch)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--%s was given before: '%s', now '%s'", name,
                             *before, value),
               0;
    if (*before == NULL && is_repeatable(use) && use->preset != NULL)
        ((struct attn_cli_list *)((char *)to + use->to))->n = 0;
    *before = value;
    if (!store(use, value, to))
        return refuse(use, value), 0;
    note_zero(use, value);
    return is_switch || equals != NULL ? 1 : 2;
}

/* --model stands for these flags, but for those that were given; values point into `from`.  A price
 * has no scale and no softcap, and knows by itself a sink, and where V is a view of K; keys that a
 * command cannot be given are refused.  0 after a message. */
static int take_model(const struct attn_cli_command *command, const char **given,
                      struct attn_model_given *from, void *to)
{
    const struct attn_flag_use *use = find(command, "--model");
    const struct attn_model *model = &from->model;
    struct attn_error err;
    if (use == NULL || given[use - command->flags] == NULL || find(command, "--heads") == NULL)
        return 1;
    if (attn_model_open(given[use - command->flags], from, &err) != ATTN_OK)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--model: %s", err.text), 0;
    if (from->settings[0] != '\0' && find(command, "--longest") == NULL)
        return attn_cli_fail(ATTN_EXIT_USAGE, "--model %s: '%s' is of a cache: attnlab price",
                             model->name, from->settings),
               0;
    for (int v = 0; v < ATTN_MODEL_VALUES; v++) {
        char flag[16], *word[] = {flag, (char *)(uintptr_t)model->value[v], NULL};
        int is_half = strcmp(attn_model_flag[v], "kv-heads") == 0 || /* as before, without it */
                      strcmp(attn_model_flag[v], "dv") == 0;
        snprintf(flag, sizeof flag, "--%s", attn_model_flag[v]);
        use = find(command, flag);
        if (*word[1] == '\0' || (is_half && strcmp(word[1], model->value[v - 1]) == 0))
            continue;
        if (use == NULL && strcmp(flag, "--keys") == 0)
            return attn_cli_fail(ATTN_EXIT_USAGE,
                                 "--model %s has %s keys, and attnlab %s no --keys", model->name,
                                 word[1], command->name),
                   0;
        if (use != NULL && given[use - command->flags] == NULL &&
            take(command, word, 0, given, to) == 0)
            return 0;
    }
    int is_bias = strncmp(model->field, "bias", 4) == 0;
    if (model->field[0] != '\0' && (is_bias || find(command, "--longest") == NULL))
        fprintf(stderr, "note: %.*s of %s is left out; %s%s has it\n",
                (int)strcspn(model->field, "="), model->field, model->name,
                is_bias ? "a case with " : "--dtype bf16:", model->field);
    return 1;
}

/* Presets, which are values like any other. */
static void preset(const struct attn_cli_command *command, void *to)
{
    for (const struct attn_flag_use *use = command->flags; use->flag != ATTN_FLAG_END; use++)
        if (use->preset != NULL && kind_of(use) == ATTN_KIND_ITEMS)
            add((void *)((char *)to + use->to), defined[use->flag].name, use->preset);
        else if (use->preset != NULL && kind_of(use) != ATTN_KIND_ONCE)
            store(use, (char *)(uintptr_t)use->preset, to);
}

static int check_operands(const struct attn_cli_command *command, char **argv, int n)
{
    int width = (int)strcspn(command->usage, "\n");
    if (n < command->operands_least)
        return attn_cli_fail(ATTN_EXIT_USAGE, "an argument is missing: attnlab %.*s", width,
                             command->usage);
    if (command->operands_most >= 0 && n > command->operands_most)
        return attn_cli_fail(ATTN_EXIT_USAGE, "'%s' is left over: attnlab %.*s",
                             argv[command->operands_most + 1], width, command->usage);
    return -1;
}

/* -1: go on, with *operands of them in argv[1] to argv[*operands]; else the exit status. */
static int read_arguments(const struct attn_cli_command *command, int argc, char **argv,
                          void *values, struct attn_model_given *model, int *operands)
{
    const char *given[64] = {NULL}; /* longer than any list of flags */
    struct attn_error err;
    int n = 0, literal = 0;
    preset(command, values);
    for (int a = 1, took; a < argc; a += took) {
        took = 1;
        if (literal || argv[a][0] != '-' || argv[a][1] == '\0')
            argv[++n] = argv[a];
        else if (strcmp(argv[a], "--") == 0)
            literal = 1;
        else if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0) {
            attn_cli_print_help(stdout, command);
            return ATTN_EXIT_GOOD;
        } else if (strcmp(argv[a], "--version") == 0 || strcmp(argv[a], "-V") == 0) {
            printf("attnlab %s (%s)\n", ATTN_RELEASE, ATTN_VERSION);
            return ATTN_EXIT_GOOD;
        } else if ((took = take(command, argv, a, given, values)) == 0)
            return ATTN_EXIT_USAGE;
    }
    *operands = n;
    if (!take_model(command, given, model, values))
        return ATTN_EXIT_USAGE;
    if (command->computes && attn_isa_best(&err) == NULL)
        return attn_cli_fail(ATTN_EXIT_LACKS, "%s", err.text);
    return check_operands(command, argv, n);
}

int attn_command_run(const struct attn_cli_command *command, int argc, char **argv)
{
    int n;
    struct attn_model_given model; /* to which values of flags may point */
    void *values = attn_cli_need(calloc(1, command->size + 1));
    if (command->initial != NULL)
        memcpy(values, command->initial, command->size);
    int status = read_arguments(command, argc, argv, values, &model, &n);
    if (status < 0)
        status = command->run(values, n, argv + 1);
    free(values);
    int flushed = attn_cli_flush();
    return flushed != ATTN_EXIT_GOOD ? flushed : status;
}

/* ---- help ------------------------------------------------------------------------------------ */

enum { WIDTH = 79, COLUMN = 24 };

/* Words of n bytes of a text in lines; the first line is there up to `used`, others begin behind
 * `indent` blanks. */
static void wrap(FILE *file, const char *text, int size, int used, int indent)
{
    for (const char *end = text + size, *first = text; text < end;) {
        int n = (int)strcspn(text, " \n");
        if (text > first && used + 1 + n > WIDTH) {
            fprintf(file, "\n%*s", indent, "");
            used = indent;
        } else if (text > first)
            used += fprintf(file, " ");
        used += fprintf(file, "%.*s", n, text);
        text += n;
        text += text < end;
    }
}

/* Paragraphs in lines; one that begins with a blank stands as it is. */
static void print_text(FILE *file, const char *text)
{
    while (*text != '\0') {
        int n = (int)strcspn(text, "\n");
        while (n > 0 && *text != ' ' && text[n] == '\n' && text[n + 1] != '\0' &&
               text[n + 1] != ' ' && text[n + 1] != '\n')
            n += 1 + (int)strcspn(text + n + 1, "\n");
        if (*text == ' ')
            fprintf(file, "%.*s", n, text);
        else
            wrap(file, text, n, 0, 0);
        fputc('\n', file);
        text += n + (text[n] == '\n');
    }
}

static void print_flag(FILE *file, const struct attn_flag_use *use)
{
    const struct attn_flag_shown shown = attn_flag_show(use);
    if (use->flag == ATTN_FLAG_TITLE) {
        fputc('\n', file);
        print_text(file, use->help);
        fputc('\n', file);
        return;
    }
    int used =
        fprintf(file, "  --%s%s%s", shown.name, shown.value[0] != '\0' ? " " : "", shown.value);
    if (used + 2 > COLUMN)
        fputc('\n', file);
    fprintf(file, "%*s", used + 2 > COLUMN ? COLUMN : COLUMN - used, "");
    char *text = attn_cli_text("%s%s%s%s", shown.help, shown.preset[0] != '\0' ? " (" : "",
                               shown.preset, shown.preset[0] != '\0' ? ")" : "");
    wrap(file, text, (int)strlen(text), COLUMN, COLUMN);
    free(text);
    fputc('\n', file);
}

void attn_cli_print_help(FILE *file, const struct attn_cli_command *command)
{
    for (const char *line = command->usage; *line != '\0';) {
        int n = (int)strcspn(line, "\n");
        int goes_on = line[0] == ' ', used = 15;
        fprintf(file, "%s%s", line == command->usage ? "usage: " : "       ",
                goes_on ? "        " : "attnlab ");
        wrap(file, line, n, used, 11);
        fputc('\n', file);
        line += n + (line[n] == '\n');
    }
    fputc('\n', file);
    print_text(file, command->about);
    if (command->flags->flag != ATTN_FLAG_END && command->flags->flag != ATTN_FLAG_TITLE)
        fputc('\n', file);
    for (const struct attn_flag_use *use = command->flags; use->flag != ATTN_FLAG_END; use++)
        print_flag(file, use);
    fputs(command->more != NULL ? "\n" : "", file);
    print_text(file, command->more != NULL ? command->more : "");
    if (command->exits == NULL)
        return;
    char *exits = attn_cli_text("\nExit status: %s", command->exits);
    print_text(file, exits);
    free(exits);
}

enum attn_status attn_cli_take_specs(struct attn_cli_list *keys, int n, char *const *spec,
                                     struct attn_error *err)
{
    for (int s = 0; s < n; s++) {
        if (keys->n == sizeof keys->at / sizeof *keys->at)
            return attn_fail(err, ATTN_EINVAL, "more than %d specs and keys", keys->n);
        keys->at[keys->n].flag = "spec";
        keys->at[keys->n++].value = spec[s];
    }
    return ATTN_OK;
}
