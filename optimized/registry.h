/* The list of implementations and the spec strings that name them.
 *
 *   spec   =  plain ["@" ISA]
 *   plain  =  NAME [":" option "=" value ("," option "=" value)*]
 *   value  =  a number, a word, or for local= a NAME or "(" plain ")"
 *   "dense"   "dense:mask=int32"   "tiled-textbook:br=16,bc=64"   "ring:ranks=4,local=dense"
 *   "tiled@avx2"   "tiled:parts=4@portable"   "ring:ranks=4,local=tiled@avx2"
 *   "ring:ranks=4,local=(tiled-textbook:br=32,bc=64)"
 *
 * An ISA is one of optimized/simd/isa.h; without one the spec runs on the best that the machine has
 * when it runs.  Ranks hand theirs on to the implementation that does their work.
 *
 * optimized/impls.def holds one line for each; its order is the order of every table and legend.
 */
#ifndef OPTIMIZED_REGISTRY_H
#define OPTIMIZED_REGISTRY_H

#include "ref/impl.h"

#ifdef __cplusplus
extern "C" {
#endif

int attn_impl_count(void);
const struct attn_impl *attn_impl_at(int index);                      /* 0 <= index < count */
int attn_option_find(const struct attn_impl *impl, const char *name); /* its place; -1: none */
const struct attn_impl *attn_impl_find(const char *name);             /* NULL when there is none */

/* The content of a spec string: an implementation with a value for each of its options. */
struct attn_spec {
    const struct attn_impl *impl;
    struct attn_options options;
};

/* EINVAL with a message that names the implementations, the options, the values or the instruction
 * sets there are; ENOTSUP when this machine lacks the instruction set. */
enum attn_status attn_spec_parse(const char *text, struct attn_spec *spec, struct attn_error *err);

/* The same for a price, which has no need of the instruction set (attn_options.priced_only). */
enum attn_status attn_spec_parse_priced(const char *text, struct attn_spec *spec,
                                        struct attn_error *err);

/* The same for an implementation that stands in another list, such as a layer's: text is all that
 * follows its name, "" or ":option=value,...". */
enum attn_status attn_spec_parse_as(const struct attn_impl *impl, const char *text,
                                    struct attn_spec *spec, struct attn_error *err);

/* The instruction set that a spec runs on here, and is priced for: that of its @, or the best that
 * this machine has.  NULL where there are no kernels to choose from. */
const struct attn_isa *attn_spec_isa(const struct attn_spec *spec);

/* The shortest string that parses to the same spec: options at their preset are left out.
 * Always terminates text; returns the length that was needed. */
int attn_spec_print(const struct attn_spec *spec, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
