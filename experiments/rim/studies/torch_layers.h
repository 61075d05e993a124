/* What PyTorch takes and gives back in a stack of layers x + Wo attention(Wqkv x), without biases:
 * the model of study training-h100.
 *
 * The model is a list of tensors (shape and type, who makes it) and the order in which they are
 * taken and given back.  It has no number from the file: widths, lengths and rules alone.  Which
 * operators make the tensors is in PyTorch's sources (aten/src/ATen/native/transformers, autograd's
 * derivatives.yaml, torch/utils/checkpoint.py).
 *
 * u = B L C e bytes, C = H d, e of an element; f the same in float32; S = 4 B H L L. */
#ifndef EXPERIMENTS_RIM_STUDIES_TORCH_LAYERS_H
#define EXPERIMENTS_RIM_STUDIES_TORCH_LAYERS_H

#include "experiments/rim/studies/cuda_cache.h"
#include "experiments/rim/studies/study.h"

enum attn_torch_backend { MATH, EFFICIENT, FLASH, CUDNN, BACKENDS };
enum attn_torch_mask { NONE, CAUSAL, BOOLEAN, MASKS };
enum attn_torch_moment { AFTER_FORWARD, PEAK_FORWARD, PEAK_BACKWARD, MOMENTS };

enum { MOST_LAYERS = 8 };
struct attn_torch_row {
    enum attn_torch_backend backend;
    enum attn_torch_mask mask;
    int is_f32, checkpoint;
    int64_t layers, B, H, d, L;
    int64_t seen[MOMENTS]; /* bytes above the file's base */
};

enum attn_torch_tensor {
#define ATTN_TENSOR(id, name, maker, bytes) id,
#include "experiments/rim/studies/torch_layers.def"
#undef ATTN_TENSOR
    TENSORS
};

/* What a tensor is, and the operator that makes it; by enum attn_torch_tensor. */
struct attn_torch_named {
    const char *name, *maker;
};
extern const struct attn_torch_named attn_torch_tensors[];

/* One row being played.  Tensors are of a layer; those of no layer of layer 0. */
struct attn_torch_play {
    const struct attn_torch_row *row;
    const struct attn_study_run *run;
    const int *entry; /* [TENSORS] of the run */
    struct attn_cuda_cache cache;
    int64_t live_at[MOST_LAYERS][TENSORS]; /* 1 + its address; 0: not there    */
    struct attn_ledger forward;            /* as it was after the forward pass */
};

/* Predicted bytes above base. */
void attn_torch_play_row(struct attn_torch_play *x, const struct attn_torch_row *row,
                         int64_t got[MOMENTS]);

#endif
