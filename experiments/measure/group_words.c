#include "experiments/measure/group_words.h"

#include <string.h>

#include "experiments/cli/cli.h"
#include "tests/harness/base/fileio.h"

const struct attn_group_word attn_group_words[ATTN_GROUP_OTHER] = {
#define GROUP(id, word, x_name, x_label, base, apart, x) {word, x_name, x_label, base, apart},
#include "experiments/measure/group_words.def"
#undef GROUP
};

const char attn_group_word_list[] =
#define GROUP(id, word, ...) " " word
#include "experiments/measure/group_words.def"
#undef GROUP
    ;

enum attn_group_kind attn_group_kind_of(const char *group)
{
    int kind = 0;
    for (; kind < ATTN_GROUP_OTHER; kind++) {
        size_t n = strlen(attn_group_words[kind].word);
        if (strncmp(group, attn_group_words[kind].word, n) == 0 &&
            (group[n] == '\0' || group[n] == '-'))
            break;
    }
    return (enum attn_group_kind)kind;
}

const char *attn_group_figures(enum attn_group_kind kind, char text[200])
{
    text[0] = '\0';
#define FIGURE(name, script, lines, column, groups, ...)                                       \
    if (kind != ATTN_GROUP_OTHER && attn_cli_listed(groups, " ", attn_group_words[kind].word)) \
        attn_append(text, 200, "%s%s", text[0] != '\0' ? " " : "", name);
#include "plots/figures.def"
#undef FIGURE
    return text;
}

double attn_group_x(enum attn_group_kind kind, const struct attn_point *p)
{
    switch (kind) {
#define GROUP(id, word, x_name, x_label, base, apart, x) \
    case ATTN_GROUP_##id:                                \
        return x;
#include "experiments/measure/group_words.def"
#undef GROUP
    case ATTN_GROUP_OTHER:
        break;
    }
    return 0;
}
