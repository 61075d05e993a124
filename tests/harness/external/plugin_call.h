/* One call of a plug-in: the problem put into its conventions, and its answer into ours. */
#ifndef TESTS_HARNESS_EXTERNAL_PLUGIN_CALL_H
#define TESTS_HARNESS_EXTERNAL_PLUGIN_CALL_H

#include "tests/harness/external/plugin.h"

enum attn_status attn_plugin_forward(struct attn_plugin_impl *plugin, const struct attn_problem *p,
                                     const struct attn_forward *t, struct attn_error *err);
enum attn_status attn_plugin_backward(struct attn_plugin_impl *plugin, const struct attn_problem *p,
                                      const struct attn_backward *t, struct attn_error *err);

#endif
