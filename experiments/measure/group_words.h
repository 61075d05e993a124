/* The one thing that a group of a plan varies, by the first word of its name: one table
 * (group_words.def) for plans, records and figures. */
#ifndef EXPERIMENTS_MEASURE_GROUP_WORDS_H
#define EXPERIMENTS_MEASURE_GROUP_WORDS_H

#include "experiments/measure/record.h"

enum attn_group_kind {
#define GROUP(id, ...) ATTN_GROUP_##id,
#include "experiments/measure/group_words.def"
#undef GROUP
    ATTN_GROUP_OTHER /* none of the words */
};

struct attn_group_word {
    const char *word, *x_name, *x_label;
    int base;
    const char *apart;
};
extern const struct attn_group_word attn_group_words[ATTN_GROUP_OTHER];

/* All words, for messages: "length ranks ...". */
extern const char attn_group_word_list[];

/* LENGTH of "length-causal"; ranks and others stand alone as well. */
enum attn_group_kind attn_group_kind_of(const char *group);

/* Where a point stands on the axis; 0 where that is not of its problem. */
double attn_group_x(enum attn_group_kind kind, const struct attn_point *point);

/* Names of the figures of such groups: "memory time error live"; "" of others. */
const char *attn_group_figures(enum attn_group_kind kind, char text[200]);

#endif
