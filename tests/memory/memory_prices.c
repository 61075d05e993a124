/* Prices worked out by hand: one problem for each family, and sizes that made history. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ref/mask/mask.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/memory_data.h"
#include "tests/suites.h"
#include "tests/wrap.h"

SUITE(memory);

/* B=2, H=4, G=2, Lq=10, Lk=12, d=8, dv=6, f32 (4 bytes), causal(br): query i sees keys 0..i+2,
 * that is 3+4+...+12 = 75 pairs of a head, 75 * 8 = 600 pairs in all, out of 2*4*10*12 = 960. */
static const char hand_case[] = "b2h4g2q10k12d8v6:causal(br):f32:normal:s1:pass=bwd";

struct hand_price {
    const char *spec;
    enum attn_pass pass;
    int64_t peak, sent, messages; /* peak 0: without what the local implementation takes */
    double flops;                 /* 0: not worked out */
    const char *live;             /* name=bytes, blank-separated */
    const char *text;             /* the case; NULL: hand_case */
};

static const struct hand_price hand_prices[] = {
    /* bytes of a mask cell 1; 960 * 4 each of S and P; backward: a row of 12 slopes
     * flops 2 * 960 * (8+6), 2 * 960 * (3*8 + 2*6) */
    {"dense", ATTN_FORWARD, 8640, 0, 0, 26880, "mask=960 scores=3840 probs=3840", NULL},
    {"dense", ATTN_BACKWARD, 8688, 0, 0, 69120, "mask=960 probs=3840 dscores=3840 slope=48", NULL},
    /* stored in 16 bits: a head of q 10*8, k 12*8, v 12*6, o 10*6, and of their gradients, in 4
     * bytes each */
    {"dense", ATTN_BACKWARD, 11152, 0, 0, 69120,
     "mask=960 probs=3840 dscores=3840 slope=48 head.q=320 head.k=384 head.v=288 head.o=240 "
     "head.dq=320 head.dk=384 head.dv=288 head.do=240",
     "b2h4g2q10k12d8v6:causal(br):bf16:normal:s1:pass=bwd"},
    /* scores too: 960 * 2 each, and two rows of 12 in float32 */
    {"dense:scores=storage", ATTN_FORWARD, 6128, 0, 0, 26880,
     "mask=960 scores=1920 probs=1920 lines=96 head.q=320 head.k=384 head.v=288 head.o=240",
     "b2h4g2q10k12d8v6:causal(br):f16:normal:s1:pass=bwd"},
    {"dense:scores=storage", ATTN_BACKWARD, 7408, 0, 0, 69120,
     "mask=960 probs=1920 dscores=1920 slope=48 lines=96 head.q=320 head.k=384 head.v=288 "
     "head.o=240 head.dq=320 head.dk=384 head.dv=288 head.do=240",
     "b2h4g2q10k12d8v6:causal(br):bf16:normal:s1:pass=bwd"},
    /* mask [B,1,Lq,Lk] of int32: 2*10*12*4 */
    {"dense:mask=int32", ATTN_FORWARD, 8640, 0, 0, 26880, "mask=960 scores=3840 probs=3840", NULL},
    /* mask [Lq,Lk]: 10*12 */
    {"dense:mask=bool2d", ATTN_FORWARD, 7800, 0, 0, 26880, "mask=120 scores=3840 probs=3840", NULL},
    /* mask of floats: 960*4 */
    {"dense:mask=float4d", ATTN_FORWARD, 11520, 0, 0, 26880, "mask=3840 scores=3840 probs=3840",
     NULL},
    /* one pattern: (10+1)*8 and 75*4; values 600*4; flops 2*600*14 */
    {"csr-textbook", ATTN_FORWARD, 5188, 0, 0, 16800,
     "csr.row_start=88 csr.column=300 scores=2400 probs=2400", NULL},
    {"csr-textbook", ATTN_FORWARD, 6420, 0, 0, 16800,
     "csr.row_start=88 csr.column=300 scores=2400 probs=2400 head.q=320 head.k=384 head.v=288 "
     "head.o=240",
     "b2h4g2q10k12d8v6:causal(br):f16:normal:s1:pass=bwd"},
    /* a row of slopes: 12*4; flops 2*600*36 */
    {"csr-textbook", ATTN_BACKWARD, 5236, 0, 0, 43200,
     "csr.row_start=88 csr.column=300 probs=2400 dscores=2400 slope=48", NULL},
    /* Br=4, Bc=8: Q 4*8, K 8*8, V 8*6, O 4*6, S 4*8, m 4, l 4, times 4 bytes */
    {"tiled-textbook:br=4,bc=8", ATTN_FORWARD, 832, 0, 0, 16800,
     "tile.q=128 tile.k=256 tile.v=192 tile.o=96 tile.s=128 tile.m=16 tile.l=16", NULL},
    /* features that are not adjacent: a head of q, k, v and o, as above */
    {"tiled-textbook:br=4,bc=8", ATTN_FORWARD, 2064, 0, 0, 16800,
     "tile.q=128 tile.k=256 tile.v=192 tile.o=96 tile.s=128 tile.m=16 tile.l=16 head.q=320 "
     "head.k=384 head.v=288 head.o=240",
     "b2h4g2q10k12d8v6:causal(br):f32:normal:s1:pass=bwd:layout=mixed"},
    /* no O, m, l; dO 4*6, slope 4*8, dK 8*8, dV 8*6, D of 10 queries */
    {"tiled-textbook:br=4,bc=8", ATTN_BACKWARD, 1416, 0, 0, 43200,
     "tile.q=128 tile.k=256 tile.v=192 tile.s=128 tile.do=96 tile.slope=128 tile.dk=256 "
     "tile.dv=192 delta=40",
     NULL},
    /* 4 lanes, panels of 12 queries; one block of one panel, a block of 192 keys: 12*8, 12*6,
     * (192+8)*12, m and l of 12, 192*(8+6), a row of 8 for each lane */
    {"tiled@portable", ATTN_FORWARD, 21248, 0, 0, 16800,
     "tile.q=384 tile.o=288 tile.s=9600 tile.ml=96 tile.kv=10752 tile.rows=128", NULL},
    /* a panel for each of 8 heads: scores 8*(12+8)*12; the rest as in tiled, for one panel */
    {"gemm@portable", ATTN_FORWARD, 19328, 0, 0, 16800,
     "scores=7680 tile.q=384 tile.o=288 tile.ml=96 tile.kv=10752 tile.rows=128", NULL},
    /* lse 8*12; of one panel q and dq 12*8, dO 12*6, delta 12; dkv (192+1)*(8+8), rows
     * (12+1)*(8+8) */
    {"gemm@portable", ATTN_BACKWARD, 40784, 0, 0, 43200,
     "probs=7680 dscores=7680 tile.kv=10752 tile.dkv=12352 tile.rows=832 q.packed=384 "
     "do.packed=288 dq=384 lse=384 delta=48",
     NULL},
    /* the same P, made once: flops 2*600*(2*8+2*6) */
    {"gemm:save=probs@portable", ATTN_BACKWARD, 40784, 0, 0, 33600,
     "probs=7680 dscores=7680 tile.kv=10752 tile.dkv=12352 tile.rows=832 q.packed=384 "
     "do.packed=288 dq=384 lse=384 delta=48",
     NULL},
    /* 4 lanes, panels of 12 queries, a step of 24; one block of 16 keys (12 are there), its tiles
     * in 8 rows more.  Two query heads of one kv head: 2*24 rows; order: 4 kv heads, each with 2
     * packs, a block of keys, 2 unpacks.  kv 16*(8+6), dkv (16+1)*(8+8), rows (12+1)*(8+8) */
    {"tiled@portable", ATTN_BACKWARD, 9808, 0, 0, 43200,
     "q.packed=1536 do.packed=1152 dq=1536 lse=192 delta=192 tile.s=1152 tile.dp=1152 tile.kv=896 "
     "tile.dkv=1088 tile.rows=832 ordered.sum=80",
     NULL},
    /* a sink: a copy of LSE, 2*4*10; dense has it in the sum of a row */
    {"tiled@portable", ATTN_BACKWARD, 9808 + 320, 0, 0, 43200,
     "q.packed=1536 do.packed=1152 dq=1536 lse=192 delta=192 tile.s=1152 tile.dp=1152 tile.kv=896 "
     "tile.dkv=1088 tile.rows=832 ordered.sum=80 sink.lse=320",
     "b2h4g2q10k12d8v6:causal(br):f32:normal:s1:pass=bwd:sink=normal"},
    {"dense", ATTN_BACKWARD, 8688, 0, 0, 69120, "mask=960 probs=3840 dscores=3840 slope=48",
     "b2h4g2q10k12d8v6:causal(br):f32:normal:s1:pass=bwd:sink=normal"},
    /* V a view of K: dV until it is added, 2*2*12*6 */
    {"tiled@portable", ATTN_BACKWARD, 9808 + 1152, 0, 0, 43200,
     "q.packed=1536 do.packed=1152 dq=1536 lse=192 delta=192 tile.s=1152 tile.dp=1152 tile.kv=896 "
     "tile.dkv=1088 tile.rows=832 ordered.sum=80 shared.dv=1152",
     "b2h4g2q10k12d8v6:causal(br):f32:normal:s1:pass=bwd:kv=shared"},
    /* blocks of 4: 3 rows of them, with 2, 3 and 3 blocks; 8 bytes a row and one more, 4 a block */
    {"bsr:size=4@portable", ATTN_FORWARD, 21312, 0, 0, 16800,
     "bsr.row_start=32 bsr.column=32 tile.q=384 tile.o=288 tile.s=9600 tile.ml=96 tile.kv=10752 "
     "tile.rows=128",
     NULL},
    /* and the same blocks by columns, of which there are 3 */
    {"bsr:size=4@portable", ATTN_BACKWARD, 9936, 0, 0, 43200,
     "bsr.row_start=32 bsr.column=32 bsr.column_start=32 bsr.row=32 q.packed=1536 do.packed=1152 "
     "dq=1536 lse=192 delta=192 tile.s=1152 tile.dp=1152 tile.kv=896 tile.dkv=1088 tile.rows=832 "
     "ordered.sum=80",
     NULL},
    /* two parts of the keys: o 2*10*6, lse 2*10 */
    {"tiled:parts=2@portable", ATTN_FORWARD, 21808, 0, 0, 0,
     "tile.q=384 tile.o=288 tile.s=9600 tile.ml=96 tile.kv=10752 tile.rows=128 part.o=480 "
     "part.lse=80",
     "q10k300d8v6:causal(br):f32:normal:s1"},
    /* few queries: two heads of 4 go together, 8*8 each of q and o; 8 rows of 64 scores, 64*(8+8)
     * of K and V; one part: o 2*4*4*6, lse 2*4*4 */
    {"tiled@portable", ATTN_FORWARD, 7552, 0, 0, 0,
     "row.q=256 row.o=256 row.s=2048 row.kv=4096 part.o=768 part.lse=128",
     "b2h4g2q4k128d8v6:causal(br):f32:normal:s1"},
    /* one pattern, one panel (a byte), a word of keys seen.  dv is no whole number of vectors: K
     * and V are copied, 12*8 each.  Workspace: scores of a batch 24064, 288 steps of 8 numbers,
     * 12 rows of 8 + 8, three arrays of 12 in 16s, 8 rows of 8, in all 26672 */
    {"csr@portable", ATTN_FORWARD, 107853, 0, 0, 16800,
     "csr.row_start=88 csr.column=300 csr.dense=1 csr.seen=8 k.rows=384 v.rows=384 "
     "workspace=106688",
     NULL},
    /* and a value for each of 600 pairs */
    {"csr:passes=3@portable", ATTN_FORWARD, 110244, 0, 0, 16800,
     "csr.row_start=88 csr.column=300 k.rows=384 v.rows=384 values=2400 workspace=106688", NULL},
    /* a kv head: 20 rows of LSE, D, dQ (8) and how far they are read; 12 keys of 2*(8+8), three
     * times 64+16, 16 each for q, dO, o; order: 4 kv heads of one chunk */
    {"csr@portable", ATTN_BACKWARD, 3972, 0, 0, 43200,
     "csr.row_start=88 csr.column=300 lse=80 delta=80 dq=640 csr.done=80 workspace=2688 "
     "ordered.sum=16",
     NULL},
    /* one panel, key blocks of 192; two chunks of keys: o 2*4*6, lse 2*4 */
    {"chunked:q=4,k=8@portable", ATTN_FORWARD, 21472, 0, 0, 16800,
     "tile.q=384 tile.o=288 tile.s=9600 tile.ml=96 tile.kv=10752 tile.rows=128 part.o=192 "
     "part.lse=32",
     NULL},
    /* one panel of queries; dQ for each of two chunks of 8 keys, dK and dV for both */
    {"chunked:q=4,k=8@portable", ATTN_BACKWARD, 5504, 0, 0, 43200,
     "q.packed=384 do.packed=288 dq=768 lse=48 delta=48 tile.s=768 tile.dp=768 tile.kv=448 "
     "dkv=1152 tile.rows=832",
     NULL},
    /* a rank: 5 queries, 6 keys.  K,V of a block 2*2*6*(8+6) = 336 numbers, which is what is
     * sent; partial O 2*4*5*6, LSE 2*4*5.  Tiles are the local implementation's, above */
    {"ring:ranks=2,local=tiled-textbook", ATTN_FORWARD, 0, 1344, 2, 0,
     "kv.travel=1344 o.partial=960 lse.partial=160", NULL},
    /* K,V hop once, dK,dV twice: 3 * 1344.  dQ 2*4*5*8; D of the rank's 2*4*5 rows, a row of zeros
     * for O */
    {"ring:ranks=2,local=tiled-textbook", ATTN_BACKWARD, 0, 4032, 6, 0,
     "zeros=24 delta.shard=160 kv.travel=1344 dkv.travel=1344 dkv.partial=1344 dq.partial=1280",
     NULL},
    /* a sink: LSE of the rank's 2*4*5 rows, parts of dz of 2 ranks, 4 heads, in 8 bytes; its own
     * part goes to the other rank */
    {"ring:ranks=2,local=tiled-textbook", ATTN_BACKWARD, 0, 4032 + 32, 7, 0,
     "zeros=24 delta.shard=160 kv.travel=1344 dkv.travel=1344 dkv.partial=1344 dq.partial=1280 "
     "sink.lse=160 sink.parts=64",
     "b2h4g2q10k12d8v6:causal(br):f32:normal:s1:pass=bwd:sink=normal"},
    /* V a view of K: K of a block 2*2*6*8 numbers hops once, their gradient twice; dV of a product,
     * 2*2*6*6, is local */
    {"ring:ranks=2,local=tiled-textbook", ATTN_BACKWARD, 0, 2304, 3, 0,
     "zeros=24 delta.shard=160 kv.travel=768 dkv.travel=768 dkv.partial=768 dq.partial=1280 "
     "shared.dv=576",
     "b2h4g2q10k12d8v6:causal(br):f32:normal:s1:pass=bwd:kv=shared"},
    /* 4 ranks: a block of K has 2*4*16*16 = 2048 numbers and travels through two slots; a rank's
     * rows are 2*8*16 = 256, of 16 features */
    {"ring:ranks=4,local=tiled-textbook", ATTN_FORWARD, 0, 49152, 6, 0,
     "kv.travel=32768 o.partial=16384 lse.partial=1024", "b2h8g4q64d16:none:f32:normal:s1"},
    {"ring:ranks=4,local=tiled-textbook", ATTN_BACKWARD, 0, 114688, 14, 0,
     "zeros=64 delta.shard=1024 kv.travel=32768 dkv.travel=16384 dkv.partial=16384 "
     "dq.partial=16384",
     "b2h8g4q64d16:none:f32:normal:s1:pass=bwd"},
    /* a rank: 2 heads, 1 kv head, all tokens: q 2*2*10*8, k 2*12*8, v 2*12*6, o 2*2*10*6, lse
     * 2*2*10; half of each is sent: (1280+768+576+960+160) / 2.  Lists of messages: 128,
     * and for each rank a send and a receive of 48 bytes, and two pieces of 64 */
    {"ulysses:ranks=2,local=tiled-textbook", ATTN_FORWARD, 0, 1872, 5, 0,
     "messages=576 q.heads=1280 k.heads=768 v.heads=576 o.heads=960 lse.heads=160", NULL},
    /* q k v dO lse D there, dQ dK dV back: (2*1280 + 2*768 + 2*576 + 960 + 2*160) / 2 */
    {"ulysses:ranks=2,local=tiled-textbook", ATTN_BACKWARD, 0, 3264, 9, 0,
     "messages=576 delta.shard=160 zeros=24 q.heads=1280 k.heads=768 v.heads=576 do.heads=960 "
     "lse.heads=160 delta.heads=160 dq.heads=1280 dk.heads=768 dv.heads=576",
     NULL},
    /* no keys: nothing is computed, and of k v dK dV nothing is sent.  Sent: half of q dO lse D and
     * dQ, (2*512 + 384 + 2*64) / 2 */
    {"ulysses:ranks=2,local=dense", ATTN_BACKWARD, 2200, 768, 5, 0,
     "messages=576 zeros=24 q.heads=512 do.heads=384 lse.heads=64 delta.heads=64 "
     "delta.shard=64 dq.heads=512",
     "b2h4g2q4k0d8v6:none:f32:normal:s1:pass=bwd"},
    /* zigzag: a block is two stretches of 4 tokens of 8 numbers; 2 heads of a stretch are 8 rows.
     * Sent: 8 tokens of K and V; backward the same, and all 16 of dK and dV */
    {"ring:ranks=2,order=zigzag,local=tiled-textbook", ATTN_FORWARD, 0, 256, 2, 0,
     "kv.travel=256 o.partial=128 lse.partial=32", "h2g1q16d4:none:f32:normal:s1"},
    {"ring:ranks=2,order=zigzag,local=tiled-textbook", ATTN_BACKWARD, 0, 768, 6, 0,
     "zeros=16 delta.shard=64 kv.travel=256 dkv.travel=256 dkv.partial=128 dq.partial=128",
     "h2g1q16d4:none:f32:normal:s1:pass=bwd"},
    /* one kv head for two ranks: each has one head and a copy of it, 8 tokens of 4 numbers.  Sent:
     * 4 tokens of a head of q, k and v, and of o and lse */
    {"ulysses:ranks=2,local=tiled-textbook", ATTN_FORWARD, 0, 272, 5, 0,
     "messages=576 q.heads=128 k.heads=128 v.heads=128 o.heads=128 lse.heads=32",
     "h2g1q8d4:none:f32:normal:s1"},
    {"ulysses:ranks=2,local=tiled-textbook", ATTN_BACKWARD, 0, 480, 9, 0,
     "messages=576 delta.shard=32 zeros=16 q.heads=128 k.heads=128 v.heads=128 do.heads=128 "
     "lse.heads=32 delta.heads=32 dq.heads=128 dk.heads=128 dv.heads=128",
     "h2g1q8d4:none:f32:normal:s1:pass=bwd"},
    /* 10 tokens for 4 ranks, padded to 12, so that rank 3 has one and room for 3: K,V of 3 tokens
     * of 4 + 4 numbers in two slots, partial O and LSE of 2*3 rows.  Sent: 3 blocks of K,V */
    {"ring:ranks=4,sizes=pad,local=tiled-textbook", ATTN_FORWARD, 0, 288, 6, 0,
     "kv.travel=192 o.partial=96 lse.partial=24", "h2g1q10d4:none:f32:normal:s1"},
    /* 5 tokens padded to 6 and 3 heads to 4: 2 heads of 6 tokens on both ranks, though one has one
     * head.  Sent: 3 tokens of 2 heads of q, k, v, o and lse.  A piece more in each list: pads */
    {"ulysses:ranks=2,sizes=pad,local=tiled-textbook", ATTN_FORWARD, 0, 408, 5, 0,
     "messages=960 q.heads=192 k.heads=192 v.heads=192 o.heads=192 lse.heads=48",
     "h3q5d4:none:f32:normal:s1"},
    /* no queries: the peak is while the other copy's gradients come home, 4 tokens of 4 */
    {"ulysses:ranks=2,local=dense", ATTN_BACKWARD, 1168, 256, 4, 0,
     "messages=576 zeros=16 k.heads=128 v.heads=128 dk.heads=128 dv.heads=128 copies=64",
     "h2g1q0k8d4:none:f32:normal:s1:pass=bwd"},
    /* bytes of 6 keys in 2 batches, for one other rank; rows of 5 queries, 2*5*12; a mask of three
     * nodes of 56 bytes behind 104 more */
    {"ulysses:ranks=2,mask=keys,local=tiled-textbook", ATTN_FORWARD, 0, 1872 + 12, 6, 0,
     "messages=576 q.heads=1280 k.heads=768 v.heads=576 o.heads=960 lse.heads=160 mask.parts=272 "
     "mask.shard=12 mask.work=24",
     "b2h4g2q10k12d8v6:keys(12,9)&causal(br):f32:normal:s1"},
    {"ulysses:ranks=2,mask=repeated,local=tiled-textbook", ATTN_FORWARD, 0, 1872 + 12, 6, 0,
     "messages=576 q.heads=1280 k.heads=768 v.heads=576 o.heads=960 lse.heads=160 mask.parts=272 "
     "mask.repeated=24 mask.work=24",
     "b2h4g2q10k12d8v6:keys(12,9)&causal(br):f32:normal:s1"},
    {"ulysses:ranks=2,mask=dense,local=tiled-textbook", ATTN_FORWARD, 0, 1872 + 120, 6, 0,
     "messages=576 q.heads=1280 k.heads=768 v.heads=576 o.heads=960 lse.heads=160 mask.parts=272 "
     "mask.shard=120 mask.work=240",
     "b2h4g2q10k12d8v6:keys(12,9)&causal(br):f32:normal:s1"},
    {"ring:ranks=2,mask=keys,local=tiled-textbook", ATTN_FORWARD, 0, 1344 + 12, 3, 0,
     "kv.travel=1344 o.partial=960 lse.partial=160 mask.parts=272 mask.shard=12 mask.travel=12",
     "b2h4g2q10k12d8v6:keys(12,9)&causal(br):f32:normal:s1"},
    {"ring:ranks=2,mask=dense,local=tiled-textbook", ATTN_FORWARD, 0, 1344, 2, 0,
     "kv.travel=1344 o.partial=960 lse.partial=160 mask.parts=272 mask.shard=120",
     "b2h4g2q10k12d8v6:keys(12,9)&causal(br):f32:normal:s1"},
    /* a rank of 4: 2 queries, 3 keys.  A pair (K, V) 2*2*3*(8+6) numbers, 672 bytes, twice; O and
     * LSE of one head 2*6 and 2; tiles of 64.  3 pairs are sent.  4 blocks of 2*4*2*3 = 48 pairs,
     * each merged into 2*4*2 rows: 4 * (2*48*(8+6) + 16*3*6) */
    {"ring-textbook:ranks=4", ATTN_FORWARD, 25464, 2016, 6, 6528,
     "kv.even=672 kv.odd=672 block.o=48 block.lse=8 tile.q=2048 tile.k=2048 tile.v=1536 "
     "tile.s=16384 tile.o=1536 tile.m=256 tile.l=256",
     "b2h4g2q8k12d8v6:none:f32:normal:s1:pass=bwd"},
    /* 3 pairs (K, V) and 4 (dK, dV), of which the last one comes home: 4 * (2*48*36 + 16*8) */
    {"ring-textbook:ranks=4", ATTN_BACKWARD, 46280, 4704, 14, 14336,
     "kv.even=672 kv.odd=672 dkv.even=672 dkv.odd=672 block.dq=64 tile.q=2048 tile.k=2048 "
     "tile.v=1536 tile.s=16384 tile.do=1536 tile.slope=16384 tile.dk=2048 tile.dv=1536 delta=8",
     "b2h4g2q8k12d8v6:none:f32:normal:s1:pass=bwd"},
    /* one head of 8 queries and 12 keys: q 2*8*8, k 2*12*8, v 2*12*6, o 2*8*6, lse 2*8 numbers;
     * 3/4 of each is sent, in 3 messages.  2*192*(8+6) */
    {"ulysses-textbook:ranks=4", ATTN_FORWARD, 26368, 1728, 15, 5376,
     "heads.q=512 heads.k=768 heads.v=576 heads.o=384 heads.lse=64 tile.q=2048 tile.k=2048 "
     "tile.v=1536 tile.s=16384 tile.o=1536 tile.m=256 tile.l=256",
     "b2h4q8k12d8v6:none:f32:normal:s1:pass=bwd"},
    /* q k v dO lse D and dQ dK dV; -D of the rank's 2*4*2 rows: 2*192*36 + 2*16*6 */
    {"ulysses-textbook:ranks=4", ATTN_BACKWARD, 47864, 3168, 27, 14016,
     "heads.q=512 heads.k=768 heads.v=576 heads.do=384 heads.lse=64 heads.delta=64 heads.dq=512 "
     "heads.dk=768 heads.dv=576 delta.own=64 zeros=24 tile.q=2048 tile.k=2048 tile.v=1536 "
     "tile.s=16384 tile.do=1536 tile.slope=16384 tile.dk=2048 tile.dv=1536 delta=32",
     "b2h4q8k12d8v6:none:f32:normal:s1:pass=bwd"},
};

/* The live set of a line; returns how many there are. */
static int live_set(const char *text, struct attn_account live[ATTN_MAX_ACCOUNTS])
{
    static char name[ATTN_MAX_ACCOUNTS][32];
    int n = 0, used;
    long long bytes;
    for (; sscanf(text, "%31[^=]=%lld %n", name[n], &bytes, &used) == 2; text += used, n++)
        live[n] = (struct attn_account){.name = name[n], .bytes = bytes};
    ck_assert_str_eq(text, "");
    return n;
}

/* A rank's own buffers: those of tiled-textbook, which it runs, are left out. */
static void ck_own(const char *what, const struct attn_cost *cost, const struct attn_account *live,
                   int n_live)
{
    int n = 0;
    for (int a = 0; a < cost->n_live; a++)
        n += strncmp(cost->live[a].name, "tile.", 5) != 0 &&
             strcmp(cost->live[a].name, "delta") != 0;
    ck_assert_msg(n == n_live, "%s: %d names for %d", what, n, n_live);
    for (int a = 0; a < n_live; a++)
        ck_assert_msg(live_of(cost->live, cost->n_live, live[a].name) == live[a].bytes, "%s: %s",
                      what, live[a].name);
}

/* The price of every rank is the literal one; that it is what is taken is part of every verdict. */
TEST_EACH(by_hand, COUNT(hand_prices))
{
    const struct hand_price *want = &hand_prices[_i];
    struct attn_account live[ATTN_MAX_ACCOUNTS];
    struct attn_spec spec = spec_of(want->spec);
    struct attn_setup setup;
    int n_live = live_set(want->live, live);
    setup_of(want->text != NULL ? want->text : hand_case, &setup);
    for (int rank = 0; rank < attn_ranks(spec.impl, &spec.options); rank++) {
        struct attn_cost cost = price_of(&spec, &setup.problem, want->pass, rank);
        if (want->peak > 0)
            ck_priced(want->spec, &cost, live, n_live, want->peak);
        else
            ck_own(want->spec, &cost, live, n_live);
        ck_assert_int_eq(cost.bytes_sent, want->sent);
        ck_assert_int_eq(cost.messages, want->messages);
        ck_assert(want->flops == 0 || cost.flops == want->flops);
        ck_assert_int_eq(cost.counted, 0);
    }
    attn_setup_close(&setup);
}

/* Price a problem of any size: at once, and without a byte. */
static struct attn_cost price(const char *text, const char *case_text, const char *mask_text)
{
    struct attn_spec spec = spec_of(text);
    struct attn_problem p = problem_of(case_text, NULL);
    struct attn_mask *mask =
        mask_of(mask_text, (struct attn_mask_shape){p.batch, p.heads, p.n_query, p.n_key});
    p.mask = mask;
    clock_t start = clock();
    wrap_fail_take(-1);
    wrap_watch();
    struct attn_cost cost = price_of(&spec, &p, ATTN_FORWARD, 0);
    ck_assert_int_eq(wrap_stop().calls, 0);
    ck_assert_int_eq(wrap_takes(), 0);
    ck_assert_int_lt((int64_t)(clock() - start), 5 * CLOCKS_PER_SEC);
    attn_mask_free(mask);
    return cost;
}

static int64_t named(const struct attn_cost *cost, const char *name)
{
    return live_of(cost->live, cost->n_live, name);
}

/* Open-Sora, issue 70: a mask of int32, five clips of 196,608 tokens: 720 GiB; dense with 8
 * heads at 200,000 tokens: 1.28 TB of scores, and what the others need instead.  Scores in 16 bits
 * that were reported: 127 GB; 635 GiB; "10 TB", which are 10.7 TiB. */
TEST(famous_prices)
{
    static const char far[] = "h8q200000d64:none:f32:normal:s1";
    static const char million[] = "h8q1000000d64:none:f32:normal:s1";
    struct attn_cost cost =
        price("dense:mask=int32", "b5h16q196608d72:none:f32:normal:s1", "causal(tl)");
    ck_assert_int_eq(named(&cost, "mask"), INT64_C(773094113280));
    ck_assert_int_eq(named(&cost, "mask"), INT64_C(720) << 30);
    cost = price("dense", far, "none");
    ck_assert_int_eq(named(&cost, "scores"), INT64_C(1280000000000));
    ck_assert_int_eq(named(&cost, "probs"), INT64_C(1280000000000));
    ck_assert_int_eq(named(&cost, "mask"), 0); /* none: nothing to store */
    ck_assert_int_eq(cost.peak_bytes, INT64_C(2560000000000));
    cost = price("dense:scores=storage", "h56q33654d128:none:bf16:normal:s1", "none");
    ck_assert_int_eq(named(&cost, "scores") / 1000000000, 126); /* 126.85 */
    cost = price("dense:scores=storage", "h24q119196d128:none:f16:normal:s1", "none");
    ck_assert_int_eq(named(&cost, "scores") >> 30, 635);
    cost = price("dense:scores=storage", "b2h48q247726d128:none:bf16:normal:s1", "none");
    ck_assert_int_eq((named(&cost, "scores") * 10) >> 40, 107);
    /* a million tokens, 7,813 rows of blocks; a window of 512 meets 5 blocks of a row, and fewer in
     * the first 4: 5 * 7813 - (4 + 3 + 2 + 1).  Causal: every block up to the diagonal */
    cost = price("bsr", million, "window(511,0,br)");
    ck_assert_int_eq(named(&cost, "bsr.row_start"), 7814 * 8);
    ck_assert_int_eq(named(&cost, "bsr.column"), 39055 * 4);
    cost = price("bsr", million, "causal(br)");
    ck_assert_int_eq(named(&cost, "bsr.column"), 7813 * 7814 / 2 * 4);
    cost = price("tiled-textbook", far, "causal(br)");
    ck_assert_int_eq(cost.peak_bytes, (64 * (4 * 64 + 64) + 2 * 64) * 4);
    /* a band of 257 keys, cut off at the left end: 200000 * 257 - (1 + ... + 256) pairs */
    cost = price("csr-textbook", far, "window(256,0,br)");
    const int64_t pairs = 200000 * 257 - 256 * 257 / 2;
    ck_assert_int_eq(cost.peak_bytes, 200001 * 8 + pairs * 4 + 8 * pairs * 4 * 2);
    ck_assert(cost.flops == 2.0 * 128 * 8 * (double)pairs);
}
