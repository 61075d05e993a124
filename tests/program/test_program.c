/* attnlab as its users meet it: started, given words, judged by its output and exit status. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(program, .open = scratch_open, .close = scratch_close);

/* Words in, status out, and what the output must contain. */
static const struct scratch_row expected[] = {
    {"", 2, "Exit status"},
    {"--help", 0, "measure"},
    {"--version", 0, "attnlab 0."},
    {"frobnicate", 2, "there are: list check"},
    {"chekc dense", 2, "did you mean check?"},
    {"-h", 0, "measure"},
    {"-V", 0, "attnlab "},
    {"help price", 0, "usage: attnlab price SPEC"},
    {"help prize", 2, "did you mean price?"},
    {"help verdicts", 0, "\n  gauge "},
    {"help price --format man", 0, ".TH ATTNLAB-price 1"},
    {"help --format man", 0, ".TH ATTNLAB 1"},
    {"help --format bash", 0, "price:--pass) words='fwd bwd both'"},
    {"list", 0, "tiled-textbook"},
    {"list cases --format=md", 0, "| name | case |"},
    {"list cases --format=json", 0, "\"stands for\""},
    {"list fills", 0, "offset-120"},
    {"list factors", 0, "multiples of 128"},
    {"list masks", 0, "causal"},
    {"list masks --mask 'temporal(2,1,2)' --length 4", 0, "#.#.\n.#.#\n#.#.\n.#.#\n"},
    {"list masks --mask 'causal(br)' --length 2 --keys 3", 0, "causal(br)\n##.\n###\n"},
    {"list masks --mask none --length 2 --format=md", 0, "```\nnone\n##\n##\n```\n"},
    {"list masks --mask none --length 2 --format=json", 0, "\"none\",\n \"##\",\n"},
    {"list masks --mask 'spatial(2,2,3)' --length 13", 2, "12 (2 for the first) or 18 (3)"},
    {"list masks --mask none", 2, "a picture of 0 queries and 0 keys: 1 to 512"},
    {"list masks --mask none --length 513", 2, "more with --out FILE.svg"},
    {"list masks --mask none --length 3 --out a.png", 2, "a name that ends in .svg would work"},
    {"list masks --mask none --length 3 --out 'a b.svg'", 2, "letters, digits, '_', '-' and"},
    {"list masks --length 3", 2, "a picture needs its mask and its length"},
    {"list cases --mask none --length 3", 2, "a picture needs its mask and its length"},
    {"list nothing", 2, "implementations, cases, factors, relations, fills, bugs, masks, models"},
    {"list models", 0,
     "--heads 128 --kv-heads 1 --dim 576 --dv 512 --mask causal(br) --scale 0.135"},
    {"price tiled --model gemma-2-27b --length 4Ki", 0,
     "b1h32g16q4096k4096d128v128:causal(br)&window(4095,0,br):f32"},
    {"price tiled --length 64 --mask none --kv-heads 1 --model gemma-2-27b --heads 2 --dim 8", 0,
     "b1h2g1q64k64d8v8:none:f32"},
    {"price tiled --model whisper-large-cross --length 8", 0, "b1h20g20q8k1500d64v64:none"},
    {"price tiled --model t5-base --length 8", 0, "note: bias of t5-base is left out"},
    {"price tiled --model gtp-2 --length 8", 2,
     "(did you mean gpt-2?); attnlab list models has them, or a config.json would work"},
    /* caches that were published: Llama 3 70B; gpt-oss, full and with its windows; Gemma 3 1B;
     * DeepSeek V3; 36 layers of 8 kv heads of 128 */
    {"price --model docs/examples/llama-3-70b.json --length 128Ki", 0, " 42,949,672,960  40.0 GiB"},
    {"price --model llama-3-70b --length 128Ki", 0, " 42,949,672,960  40.0 GiB"},
    {"price --model gpt-oss --mask 'causal(br)' --length 8Ki --batch 32", 0, "  12.0 GiB"},
    {"price --model docs/examples/gpt-oss-20b.json --length 8Ki --batch 32", 0, "  6.09 GiB"},
    {"price --model docs/examples/gemma-3-1b.json --length 32Ki", 0, "   139 MiB"},
    {"price --model docs/examples/deepseek-v3.json --length 128Ki", 0, "  8.58 GiB"},
    {"price --model deepseek-v3-absorbed --length 128Ki", 0, "  8.58 GiB"},
    {"price --model docs/examples/qwen-3-8b.json --length 256Ki", 0, "  36.0 GiB"},
    {"price --model llama-3-70b --memory 40GiB --longest", 0, " 131,072  42,949,672,960"},
    {"price --model gpt-oss --length 8Ki --batch 32 --format json", 0, "\"bytes\": 6543114240\n"},
    {"price --model llama-3-8b --length 8Ki --memory 24GB --params 8G,2", 0,
     "  1,073,741,824  1.00 GiB  yes\n"},
    {"price --model llama-3-8b --length 8Ki --memory 24GB --params 8e9,3", 0,
     "  1,073,741,824  1.00 GiB  no\n"},
    {"price --model gpt-2:page=0 --length 8", 2, "'page=0' of a model: type=f32|f16|bf16|fp8|int4"},
    {"price --model gpt-2 --length 8 --pass both", 2, "prices a model in one shape"},
    {"price tiled --model gpt-2:type=fp8 --length 8", 2, "which is priced without SPEC"},
    {"measure tiled --model gpt-2:type=fp8 --length 8", 2,
     "'type=fp8' is of a cache: attnlab price"},
    {"measure tiled --model docs/examples/gemma-3-1b.json --length 8 --dry-run", 0,
     "h4g1q8d256:causal(br)&window(511,0,br):bf16:normal:s1:scale=0.0625"},
    {"measure tiled --model whisper-large-cross --length 64 --dry-run", 0, "q64k1500"},
    {"measure --plan x --model gpt-2 --out x", 2, "--model gpt-2: a plan says heads, dim and mask"},
    {"measure tiled --model gemma-2-9b --length 8 --dry-run", 0,
     "h16g8q8d256:causal(br)&window(4095,0,br):f32:normal:s1:softcap=50"},
    {"measure tiled --model deepseek-v3 --length 8 --dry-run", 0, ":s1:scale=0.135"},
    {"check tiled --model gpt-2 --soak 1", 2, "--case, --model, --relation"},
    {"price ring --ranks 4", 2, "options are part of a SPEC: ring:ranks=4"},
    {"measure tiled --len 256", 2, "did you mean --length?"},
    {"check -v tiled", 2, "did you mean --verbose?"},
    {"check --plugin x.c", 2, "x.c: is source: cc -O2 -shared -fPIC -I. -o x.so x.c"},
    {"check tiled --model gpt", 2, "no model is called 'gpt' (did you mean gpt-2?)"},
    {"check tiled --model gpt-2", 0, "\n  judged at the shapes of: gpt-2\n"},
    {"check --help", 0, "--strict"},
    {"check nosuch", 2, "no implementation is called 'nosuch'; there are: dense"},
    {"check dense:mask=int16", 2, "bool4d bool2d int32 float4d"},
    {"check ./x.so", 2, "a file is a plug-in: --plugin ./x.so"},
    {"check tiled-textbook:bc=0", 2, "from 1 to 4096"},
    {"check dense:colour=red", 2, "dense has no option 'colour'; it has: mask"},
    {"check dense --case 'b1q4'", 2, "attnlab check: "},
    {"check dense --case 'q4d2:causal:f32:normal:s1'", 2, "causal needs an alignment"},
    {"check ring --case 'q4d2:causal(br):f32:normal:s1:bias=full'", 2, "REFUSED"},
    {"check ring:ranks=3,sizes=strict --case 'q4d2:none:f32:normal:s1'", 2, "1, 2, 4"},
    {"check dense --case reveal-causal-br", 0, "PASS"},
    {"check tiled-textbook --case 'b1h2q17k9d8:causal(br):f32:normal:s3:pass=bwd'", 0, "dk "},
    {"price dense --length 200k --heads 8", 0, "1,280,000,000,000  1.16 TiB"},
    {"price ring:ranks=8 --length 1M --heads 8", 0, "of shards, their copies = "},
    {"price dense --length 200,000", 2, "begins with 0; 200000, 200k and 64Ki are numbers"},
    {"price dense --length 200000", 0, "= 298 GiB"},
    {"price dense:mask=int32 --length 196608 --batch 5 --mask 'causal(br)'", 0,
     "773,094,113,280   720 GiB"},
    {"price dense --length 9223372036854775807", 2, "extents b1 h1"},
    {"price dense --length 64 --length 128", 2, "--length was given before: '64', now '128'"},
    {"price dense --length 64,", 2, "begins with 0; 200000, 200k and 64Ki are numbers"},
    {"price dense --lengt 64", 2,
     "--lengt: no such flag (did you mean --length?); see attnlab price --help"},
    {"price dense --length", 2, "--length needs a value"},
    {"price dense -l 64", 2, "-l: no such flag"},
    {"list cases extra", 2, "'extra' is left over"},
    {"env --format json", 0, "\"cpu\""},
    {"check dense --timeout 3", 2, "external implementations: --plugin"},
    {"check dense --plugin x", 2, "not judged in one run"},
    {"check --plugin x --relation growth", 2,
     "--relation growth is for implementations of attnlab"},
    {"measure dense --length 64, --dry-run", 2, "one is empty or begins with 0"},
    {"measure dense ring --length 8 --dry-run", 0, "ring"},
    {"measure dense ring --length 1k --pass both --dry-run", 0, "q1000"},
    {"measure --from x --csv - --rounds 2", 2, "--from goes with --csv and nothing else"},
    {"price ring:ranks=4 --length 65536 --pass both", 0, "sends"},
    {"price ulysses:ranks=3,sizes=strict --length 64 --heads 8", 2, "1, 2, 4, 8"},
    {"price tiled ring:ranks=3,sizes=strict --length 8", 2, "refused: "},
    {"price ring:ranks=3,sizes=strict tiled --length 64Ki", 2, "tiled  fwd  b1h1g1q65536k65536"},
    {"price ring:ranks=3,sizes=strict --length 8 --format json", 2, "\"refused\": "},
    {"price tilde --length 8", 2, "did you mean tiled?"},
    {"price tiled:part=8 --length 8", 2, "did you mean parts?"},
    {"price dense --length 9G,9000000000000G", 2, "is not an integer from 0 to"},
    {"price dense --length 64 --format json", 0, "\"needed_bytes\""},
    {"price dense", 2, "--length"},
    {"price dense --length 64 --mask 'causal(sideways)'", 2, "sideways"},
    {"bench dense --length 8", 2, "attnlab measure SPEC --length L --peak 1"},
    {"measure dense --length 8 --threads 0 --dry-run", 2, "threads '0' is not a number from 1"},
    {"measure dense --length 8 --threads 1,2 --dry-run", 0, ":s1:threads=2"},
    {"measure dense --length 8 --peak yes", 2, "peak = 'yes' is not an integer from 0 to 1"},
    {"measure dense --length 8 --pass up", 2, "pass 'up'"},
    {"check dense csr-textbook --case reveal-all --format junit", 0, "</testsuites>"},
    {"check dense --case reveal-all --format json", 0, "\"attnlab-check\""},
    {"check dense --format yaml --case reveal-all", 2, "text, junit or json"},
    {"check ring --relation growth --format json", 0, "\"slope\""},
    {"check dense --relation growth", 2, "neither ranks nor splits"},
    {"check ring --relation growth --case reveal-all", 2, "one of them at a time"},
    {"check dense --case lean-ties --format json", 0, "\"deviations\""},
    {"check dense --case mix-row-f64", 0, "mask: one key more or less would show"},
    {"check dense --tier huge", 2, "quick or full"},
    {"check dense --relation R7", 0, "does not matter"},
    {"check csr-textbook --relation R17", 2, "has no options"},
    {"check dense --relation R99", 2, "R1 to R23"},
    {"check dense --relation R7 --case reveal-all", 2, "one of them at a time"},
    {"check csr-textbook --soak 0.3 --seed 5", 0, "random cases of seed 5"},
    {"check dense --soak -1", 2, "a number above 0 is needed"},
    {"check dense --soak 1 --seed x", 2, "a whole number"},
    {"check dense --case pairs-100", 0, "what kernels branch on"},
    {"list cases --tier huge", 2, "quick or full would work"},
    {"check --exec true", 2, "need --claims"},
    {"check --exec true --claims /nonexistent", 2, "/nonexistent"},
    {"check --results /nonexistent", 2, "/nonexistent/manifest.json"},
    {"check --plugin a.so --claims b", 2, "a plug-in says itself what it claims"},
    {"check --plugin a.so --results b", 2, "--results is judged alone"},
    {"check --plugin a.so other", 2, "are not judged in one run"},
    {"check --plugin a.so --timeout never", 2, "--timeout 'never'"},
    {"check --plugin a.so --case nonsense", 2, "is no case of the battery"},
    {"check dense --case nonsense", 2, "is no case of the battery"},
    {"check --exec true --claims a --relation R7", 2, "--relation is for plug-ins"},
    {"check --results a --soak 3", 2, "--soak and --budget need something to run"},
    {"check --plugin a.so --soak never", 2, "--soak 'never'"},
    {"vectors", 2, "an argument is missing: attnlab vectors DIR"},
    {"vectors x --claims README.md", 2, "not JSON"},
    {"vectors /nonexistent/x/y", 3, "/nonexistent/x/y: cannot be made a folder"},
};

TEST_EACH(words_and_status, COUNT(expected))
{
    scratch_rows(&expected[_i], 1);
}

/* A whole tier, which takes seconds: cases, relations, and of what has ranks the growth. */
TEST(a_whole_tier)
{
    scratch_expect(0, "; growth ", "check ring:ranks=2");
    ck_assert_ptr_nonnull(strstr(scratch_output, "; relations: "));
    ck_assert_ptr_nonnull(strstr(scratch_output, " pass, 0 fail, "));
}

/* The line that repeats a failure begins as the program was started: from any folder, by any path,
 * and as it stands. */
TEST(again_from_anywhere)
{
    char line[PATH_MAX + 10];
    ck_assert_int_eq(mkdir(scratch_path("it's here"), 0777), 0);
    snprintf(line, sizeof line, "%s/attnlab", scratch_full_path(test_build()));
    ck_assert_int_eq(symlink(line, scratch_path("it's here/lab")), 0);
    scratch_shell(1, "  again: './it'\\''s here/lab' check ",
                  "cd '%s' && \"./it's here/lab\" check dense --strict --case "
                  "h4q2k1d0:none:f32:normal:s302326:softcap=5",
                  scratch_path(""));
    char *first = strdup(scratch_output);
    ck_assert_ptr_nonnull(first);
    const char *again = strstr(first, "  again: ") + strlen("  again: ");
    scratch_shell(1, "", "cd '%s' && %.*s", scratch_path(""), (int)strcspn(again, "\n"), again);
    const char *summary = strstr(first, "\ndense "); /* has its seconds */
    ck_assert_ptr_nonnull(summary);
    ck_assert_int_eq(strncmp(first, scratch_output, (size_t)(summary - first)), 0);
    free(first);
}

/* The picture of a mask, and the script that drew it, which draws it again by itself. */
TEST(picture_of_a_mask)
{
    const char *svg = scratch_path("m.svg");
    int status = scratch_attnlab("list masks --mask 'temporal(2,1,2)|prefix(1)' --length 4 "
                                 "--out '%s'",
                                 svg);
    if (status == 3 && strstr(scratch_output, "gnuplot is not installed") != NULL) {
        printf("picture_of_a_mask: skipped: no gnuplot here\n");
        return;
    }
    ck_assert_msg(status == 0 && scratch_output[0] == '\0', "%d: %s", status, scratch_output);
    scratch_shell(0, "$runs << END\n0 0 0\n0 0 1\n0 2 3\n1 0 2\n1 3 4\n", "cat '%s'",
                  scratch_path("m.gp"));
    scratch_shell(0, "temporal(2,1,2)|prefix(1)",
                  "cd '%s' && grep -q '<svg' m.svg && mv m.svg first && gnuplot -d m.gp && "
                  "cmp m.svg first && cat m.svg",
                  scratch_path(""));
}

/* tests/install.sh; not of a sanitized library, which links into no program that is not. */
TEST(installed)
{
    if (strstr(test_build(), "release") != NULL)
        scratch_shell(0, "", "bash tests/install.sh '%s' '%s'", test_build(), scratch_path(""));
}

TEST(makefile)
{
    if (strstr(test_build(), "release") != NULL)
        scratch_shell(0, "", "bash tests/make.sh '%s' '%s'", test_build(), scratch_path(""));
}

/* A full disk is reported, not ignored, by each command that prints. */
static const char *const prints[] = {"list cases",
                                     "check dense --case ties",
                                     "check dense --case ties --format junit",
                                     "vectors $folder/v --case ties",
                                     "price dense --length 8 --format json",
                                     "measure dense --length 8 --dry-run",
                                     "measure --from $folder/r.jsonl --csv -",
                                     "measure dense --length 8 --rounds 1 --repeat 1",
                                     "env",
                                     "help",
                                     "report --from $folder/r.jsonl --out $folder/r",
                                     "point '{\"schema\": 2, \"record\": \"point\", \"status\": "
                                     "\"priced\", \"spec\": \"dense\", \"case\": "
                                     "\"q8d4:none:f32:normal:s1\", \"repeat\": 0, \"enough_s\": 0, "
                                     "\"verify_all\": 64}'"};

/* Each room of the rim can be deleted with its line in commands.def. */
TEST(rooms_can_be_deleted)
{
    if (getenv("ATTN_FULL") != NULL)
        scratch_shell(0, "ok    without", "bash tests/rooms.sh '%s' '%s'", test_build(),
                      scratch_path(""));
}

TEST(full_disk)
{
    setenv("folder", scratch_path(""), 1);
    scratch_expect(0, "", "measure dense --length 8 --rounds 1 --out $folder/r.jsonl");
    for (int p = 0; p < COUNT(prints) && access("/dev/full", W_OK) == 0; p++)
        scratch_expect(3, "No space left", "%s >/dev/full", prints[p]);
}

/* The page of bugs is what the program says today; `make docs` makes it again.  A bug has its row
 * there, or the page of mutants has it. */
TEST(documents)
{
    char *page = scratch_read("docs/bugs.md"), *mutants = scratch_read("docs/mutants.md");
    scratch_expect(0, "", "list bugs --format=md");
    char *rest = scratch_output;
    for (char *row = strsep(&rest, "\n"); row != NULL && *row != '\0'; row = strsep(&rest, "\n")) {
        char id[32];
        ck_assert_msg(sscanf(row, "| %31s", id) == 1, "%s", row);
        ck_assert_msg(strstr(page, row) != NULL || strstr(mutants, id) != NULL,
                      "docs/bugs.md lacks %s: make docs", row);
    }
    free(page);
    free(mutants);
}
