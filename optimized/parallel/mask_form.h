/* As what ranks have the mask: the option mask=, which a scheme puts into its table and names in
 * attn_scheme.mask.  travel/work_mask.h says which bytes these are and what brings them. */
#ifndef OPTIMIZED_PARALLEL_MASK_FORM_H
#define OPTIMIZED_PARALLEL_MASK_FORM_H

enum attn_mask_form { ATTN_MASK_DESCRIBED, ATTN_MASK_KEYS, ATTN_MASK_REPEATED, ATTN_MASK_DENSE };
#define ATTN_OPTION_OF_MASK                                                                      \
    {                                                                                            \
        "mask", ATTN_MASK_DESCRIBED, 0, ATTN_MASK_DENSE, "described keys repeated dense",        \
            "what a rank has of the mask: its description; the bytes of keys(...) of its keys, " \
            "brought where they are needed; these R times, for an all-to-all; rows of bytes of " \
            "its queries"                                                                        \
    }

#endif
