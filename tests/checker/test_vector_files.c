/* Claims, cases and results as files, commands that compute them, and the examples of docs/examples
 * in every language that is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/cases/claims.h"
#include "tests/suites.h"

SUITE(vector_files, .open = scratch_open, .close = scratch_close);

/* ---- claims in a file ------------------------------------------------------------------------ */

static const char *const declarations[] = {
    "{\"claims\": [\"f32\"]}",
    "{\"name\": \"x\", \"claims\": [\"f64\", \"band\"], \"lse\": \"2\", \"causal\": \"tl\", "
    "\"u_p\": 0.001, \"block\": 64}",
    "{\"claims\": [\"f32\", \"causal\"], \"declines\": [\"nan-q\", \"nan-do\"]}",
    "{\"claims\": [\"bf16\"], \"arithmetic\": \"unfused-16\", \"u_ds\": 0.001, \"subnormals\": "
    "\"flushed-16\"}",
    "{\"claims\": [\"bf16\"], \"arithmetic\": \"fa4\", \"u_dp\": 0.004, \"hidden\": 32768, "
    "\"splits\": 4, "
    "\"empty_lse\": \"0\", \"declines\": [\"unmasked\", \"causal-backward\", \"few-shapes\"]}",
    "{\"claims\": [\"f32\", \"cross\"], \"layout\": \"paged\", \"page\": 16}",
};

TEST_EACH(declaration_is_read, COUNT(declarations))
{
    struct attn_claims claims, same;
    struct attn_error err = {0};
    const char *text = declarations[_i], *path = scratch_put("claims.json", text, strlen(text));
    ck_assert_msg(attn_claims_read(path, &claims, &err) == ATTN_OK, "%s", err.text);
    char *printed = attn_claims_print(&claims);
    ck_assert_msg(attn_claims_parse("printed", printed, &same, &err) == ATTN_OK, "%s", err.text);
    ck_assert_mem_eq(&claims, &same, sizeof claims);
    free(printed);
}

static const char *const refused_pages[][2] = {
    {"\"page\": 16", "\"page\" belongs to layout \"paged\""},
    {"\"layout\": \"paged\", \"page\": 5000", "\"page\" is 5000: up to 4096"},
    {"\"layout\": \"paged\"", "layout \"paged\" has no gradients: do not claim backward"}};

TEST_EACH(pages_that_make_no_sense, COUNT(refused_pages))
{
    struct attn_claims claims;
    struct attn_error err = {0};
    char text[200];
    int n = snprintf(text, sizeof text, "{\"claims\": [\"f32\"%s], %s}",
                     _i == 2 ? ", \"backward\"" : "", refused_pages[_i][0]);
    const char *path = scratch_put("claims.json", text, (size_t)n);
    ck_assert(attn_claims_read(path, &claims, &err) == ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, refused_pages[_i][1]) != NULL, "%s", err.text);
}

/* ---- commands and folders -------------------------------------------------------------------- */

static const char *put_claims(void)
{
    static const char text[] = "{\"name\": \"c\", \"claims\": [\"f32\"]}";
    return scratch_put("claims.json", text, sizeof text - 1);
}

static const struct {
    const char *command;
    int status;
    const char *says;
} commands[] = {
    /* the first two do not end */
    {"yes", 1, "TIMEOUT"},
    {"sleep 100 #", 1, "the command had not ended after 1 s"},
    {"sh -c \"kill -9 \\$\\$\"", 2, "too the command died (Killed)"},
    {"false", 2, "does not start: on an empty list of cases too the command ended with status 1"},
    {"echo one; echo two; exit 4 #", 2, "status 4; it said: two"},
    {"true", 1, "no result, although the command ended well"},
    {"no-such-command", 2, "cannot be run"},
    {"head -c 30000000 /dev/zero #", 1, "no result, although the command ended well"},
    {"sh -c \"sleep 100 & exit 0\" #", 1, "no result, although the command ended well"},
    {"sh -c \"mkdir -p \\$1/length-square-heads; mkfifo \\$1/length-square-heads/error.txt\"", 1,
     "error.txt: is not a regular file"},
    {"sh -c \"mkdir -p \\$1/length-square-heads; ln -s /etc/passwd "
     "\\$1/length-square-heads/error.txt\"",
     1, "error.txt: is a symbolic link, which is not followed here"},
};

enum { HANGING = 2 };

TEST_EACH(commands_that_fail, COUNT(commands))
{
    scratch_expect(commands[_i].status, commands[_i].says,
                   "check --exec '%s' --claims '%s' --case length-square-heads "
                   "--timeout %d",
                   commands[_i].command, put_claims(), _i < HANGING ? 1 : 60);
    if (commands[_i].status == 2) /* one line, and nothing else */
        ck_assert_ptr_eq(strchr(scratch_output, '\n'), scratch_output + strlen(scratch_output) - 1);
}

/* Results that are not what they should be: one clear line each. */
static const struct {
    const char *make, *says;
} broken[] = {
    {"true", "no folder of results for this case"},
    {"mkdir $R", "o.npy is missing"},
    {"mkdir $R; echo junk >$R/o.npy", "has 5 bytes"},
    {"mkdir $R; cp $I $R/result.safetensors", "has a tensor q, which is not asked for"},
    {"mkdir $R; head -c 40 $I >$R/result.safetensors", "result.safetensors"},
    {"mkdir -p $R/result.safetensors", "result.safetensors"},
    {"mkdir $R; echo ' ' >$R/refused.txt", "it refuses, and does not say why"},
    {"mkdir $R; echo no >$R/refused.txt; cp $I $R/result.safetensors",
     "refused.txt lies beside result.safetensors: a case has results, or is refused"},
    {"mkdir $R; echo no >$R/refused.txt; echo broken >$R/error.txt", "the program says: broken"},
};

TEST_EACH(broken_results, COUNT(broken))
{
    const char *vectors = scratch_path("v"), *out = scratch_path("out");
    scratch_expect(0, "", "vectors '%s' --case ties", vectors);
    scratch_shell(0, "", "R=%s/ties I=%s/ties/inputs.safetensors; mkdir %s; %s", out, vectors, out,
                  broken[_i].make);
    scratch_expect(1, broken[_i].says, "check --results '%s' --vectors '%s'", out, vectors);
}

/* A command in C without numpy, on tensors [B,H,L,d], [B,L,H,d] and [L,B,H,d]; DOES=TURNED takes
 * all for the first. */
TEST_EACH(layouts_of_a_command, 4)
{
    static const char *const layout[] = {"bhld", "blhd", "sbhd", "sbhd"};
    char claims[160];
    int is_wrong = _i == 3;
    snprintf(claims, sizeof claims,
             "{\"claims\": [\"f32\", \"gqa\", \"cross\", \"dv\", \"scale\"], \"layout\": \"%s\"}",
             layout[_i]);
    setenv("DOES", is_wrong ? "TURNED" : "", 1);
    scratch_expect(
        is_wrong, is_wrong ? "FAIL(bound)" : " 0 fail, 0 refused",
        "check --exec %s/faults/dense --claims '%s' --case h6g2q9k14d8:none:f32:normal:s3 "
        "--case b2h3q5k7d4v6:none:f32:normal:s1",
        test_build(), scratch_put("claims.json", claims, strlen(claims)));
    unsetenv("DOES");
}

/* A disk that takes no more: one line, the right status, and no manifest that promises cases. */
TEST(full_disk)
{
    scratch_shell(3, "inputs.safetensors: ",
                  "(trap '' XFSZ; ulimit -f 8; '%s/attnlab' vectors '%s' --tier quick)",
                  test_build(), scratch_path("v"));
    scratch_shell(1, "", "test -e '%s/manifest.json'", scratch_path("v"));
}

/* ---- the examples ---------------------------------------------------------------------------- */

/* The example that reads and writes files. */
static void put_manual_example(void)
{
    scratch_shell(0, "", "cp docs/examples/numpy_attention.py '%s'", scratch_path("mine.py"));
    scratch_shell(0, "", "cp docs/examples/numpy_attention.json '%s'", scratch_path("mine.json"));
}

#define TELLS(file)                                                               \
    "if case['name'] == 'reveal-holes': os.makedirs(f\"{out}/{case['name']}\"); " \
    "open(f\"{out}/{case['name']}/" file "\", 'w').write('no holes here'); "

/* One start for all: a case that ends the command is named, and the others are run without it; a
 * program that says why it has no result is quoted. */
static const struct {
    const char *trouble; /* python, before each case is computed */
    int passes, status;  /* passes: at least */
    const char *says[2];
} troubles[] = {
    {"0", 4, 0, {" 0 fail,"}},
    {"if case['name'] == 'reveal-holes': raise ValueError('no holes')",
     4,
     1,
     {" 1 crash, 0 error",
      "note: at case reveal-holes the command ended with status 1; it said: ValueError: no holes"}},
    {"if case['name'] == 'reveal-holes': os.abort()", 4, 1, {"the command died (Aborted)"}},
    {"if 'reveal' not in case['name']: raise ValueError('reveal only')",
     1,
     1,
     {"cases not reached: the command died at case "}},
    {"raise ValueError('nothing works')", 0, 1, {" 3 crash,", " 1 error"}},
    {TELLS("error.txt") "continue", 4, 1, {"the program says: no holes here"}},
    /* Both say that they cannot go on, and end: no other case is to blame. */
    {TELLS("error.txt") "os._exit(3)", 4, 1, {" 0 weak, 0 error", "note: before case "}},
    {TELLS("refused.txt") "os.abort()",
     4,
     0,
     {" refused (1 by it), 0 weak, 0 error", "\n    1: no holes here; "}},
};

TEST_EACH(troubled_commands, COUNT(troubles))
{
    static const char insert[] =
        "import re, sys\n"
        "text = open(sys.argv[1]).read()\n"
        "where = re.search(r'for case in .*\\n', text).end()\n"
        "open(sys.argv[1], 'w').write(text[:where] + '        ' + sys.argv[2] "
        "+ '\\n' + text[where:])\n";
    if (!fixture_python("numpy"))
        return;
    put_manual_example();
    setenv("TROUBLE", troubles[_i].trouble, 1);
    scratch_shell(0, "", "/usr/bin/python3 '%s' '%s' \"$TROUBLE\"",
                  scratch_put("trouble.py", insert, sizeof insert - 1), scratch_path("mine.py"));
    int needs_all =
        strstr(troubles[_i].says[0], "not reached") != NULL; /* it dies too often for few */
    scratch_expect(troubles[_i].status, troubles[_i].says[0],
                   "check --exec '/usr/bin/python3 %s' --claims '%s' --refusals%s",
                   scratch_path("mine.py"), scratch_path("mine.json"),
                   needs_all ? "" : fixture_some_cases());
    const char *also = troubles[_i].says[1];
    ck_assert_msg(also == NULL || strstr(scratch_output, also) != NULL, "no '%s':\n%s", also,
                  scratch_output);
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), troubles[_i].passes);
}

/* Beginners' programs (tests/external/students.py), all in one run: what is right for what it
 * claims passes. */
static const struct {
    const char *style, *claims;
} students[] = {
    {"one_line", "{\"name\": \"a\", \"claims\": [\"f32\"], \"lse\": \"absent\"}"},
    {"tril", "{\"name\": \"b\", \"claims\": [\"f32\", \"causal\"], \"lse\": \"absent\"}"},
    {"minus_1e9",
     "{\"name\": \"c\", \"claims\": [\"f32\", \"cross\", \"dv\", \"dense\", \"scale\"]}"},
    {"einsum",
     "{\"name\": \"d\", \"claims\": [\"f32\", \"gqa\", \"cross\", \"dv\", \"causal\", \"dense\", "
     "\"scale\", \"backward\"]}"},
    {"loops", "{\"name\": \"e\", \"claims\": [\"f32\", \"dv\", \"causal\"], \"causal\": \"br\"}"},
    {"one_line", "{\"name\": \"f\", \"claims\": [\"f16\", \"bf16\"], \"lse\": \"absent\"}"},
};

static void put_students(char *args, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < COUNT(students); i++) {
        char name[24];
        snprintf(name, sizeof name, "%d.json", i);
        n += (size_t)snprintf(args + n, size - n,
                              " --exec '/usr/bin/python3 tests/external/students.py %s' "
                              "--claims '%s'",
                              students[i].style,
                              scratch_put(name, students[i].claims, strlen(students[i].claims)));
    }
}

TEST(beginners_pass)
{
    char args[3000];
    if (!fixture_python("numpy"))
        return;
    put_students(args, sizeof args);
    scratch_expect(0, "", "check%s%s", args, fixture_some_cases());
    const char *list = strstr(scratch_output, "6 implementations:\n");
    ck_assert_msg(list != NULL, "%s", scratch_output);
    for (int i = 0; i < COUNT(students); i++) {
        char line[32];
        snprintf(line, sizeof line, "  PASS  %c (", 'a' + i);
        ck_assert_msg(strstr(list, line) != NULL, "%s", scratch_output);
    }
}

/* The one finding that comes first for each mistake. */
static const struct {
    const char *style, *claims;
    const char *says[2];
} corrected[] = {
    {"no_lse",
     "{\"claims\": [\"f32\"]}",
     {"  lse.npy is missing; declare \"lse\": \"absent\"?\n", "more like it: "}},
    {"stops",
     "{\"claims\": [\"f32\", \"cross\", \"causal\"], \"lse\": \"absent\"}",
     {"it said: KeyError: 'seq_len'\n",
      "diagnosed failures: fits no mask at all: causal ignored\n"}},
    {"minus_1e9",
     "{\"claims\": [\"f32\", \"cross\", \"dv\", \"band\"]}",
     {"likely cause, by", "fits no mask at all: causal ignored\n"}},
};

TEST_EACH(beginners_are_told, COUNT(corrected))
{
    const char *claims = corrected[_i].claims;
    if (!fixture_python("numpy"))
        return;
    scratch_expect(1, corrected[_i].says[0],
                   "check --exec '/usr/bin/python3 tests/external/students.py %s' --claims '%s'%s",
                   corrected[_i].style, scratch_put("claims.json", claims, strlen(claims)),
                   fixture_some_cases());
    scratch_has(corrected[_i].says[1]);
}

/* One that cannot be judged hides none of the others, in any format. */
TEST_EACH(several_are_judged, 3)
{
    static const char *const format[] = {"text", "junit", "json"};
    scratch_expect(2, "",
                   "check --plugin README.md --exec no-such-command --exec 'exit 3 #' "
                   "--claims '%s' --plugin '%s' --format %s%s",
                   put_claims(), fixture_build("docs/examples/plugin_naive.c"), format[_i],
                   fixture_some_cases());
    static const char *const says[] = {"README.md: ", "no-such-command' cannot be run",
                                       "does not start: on an empty list of cases too", "naive ("};
    for (int n = 0; n < 4; n++) {
        const char *at = strstr(scratch_output, n == 1 && _i == 1 ? "no-such-command" : says[n]);
        ck_assert_msg(at != NULL, "no '%s':\n%s", says[n], scratch_output);
    }
    if (_i == 0)
        ck_assert_msg(strstr(scratch_output, "4 implementations:\n  NOT JUDGED  README.md  ") !=
                          NULL,
                      "%s", scratch_output);
}

/* Claims that the example does not keep: the files are right, the words are not. */
static const struct {
    const char *from, *to, *says;
} misdeclared[] = {
    {"\"claims\"", "\"lse\": \"2\", \"claims\"", "LSE is converted from base 2 once too often"},
    {"\"claims\"", "\"mask_one\": \"hidden\", \"claims\"", "fits mask inverted"},
};

TEST_EACH(misdeclared_conventions_are_named, COUNT(misdeclared))
{
    if (!fixture_python("numpy"))
        return;
    scratch_shell(0, "", "sed 's/%s/%s/' docs/examples/numpy_attention.json >'%s'",
                  misdeclared[_i].from, misdeclared[_i].to, scratch_path("m.json"));
    scratch_expect(1, "",
                   "check --exec '/usr/bin/python3 docs/examples/numpy_attention.py' "
                   "--claims '%s'%s",
                   scratch_path("m.json"), fixture_some_cases());
    const char *vote = strstr(scratch_output, " diagnosed failures: ");
    ck_assert_msg(vote != NULL && strstr(vote, misdeclared[_i].says) != NULL, "not named '%s':\n%s",
                  misdeclared[_i].says, scratch_output);
}

/* With one wrong result in a whole start: the twenty more of that case are right; and right, with
 * ATTN_FULL, since all other random cases of that start are. */
static const struct {
    const char *trouble;
    int status;
    const char *says;
} soaks[] = {{"main.n = getattr(main, \"n\", 0) + 1; result[\"o\"] = result[\"o\"] + "
              "result[\"o\"].dtype.type(main.n == 51)",
              1, "as found it failed in 1 of 21 runs; FAIL("},
             {"0", 0, "random cases of seed 1"}};

TEST_EACH(soak_of_a_command, getenv("ATTN_FULL") != NULL ? 2 : 1)
{
    if (!fixture_python("numpy"))
        return;
    scratch_shell(0, "",
                  "sed 's/result = compute(case, tensors)/&; %s/' "
                  "docs/examples/numpy_attention.py >'%s'",
                  soaks[_i].trouble, scratch_path("mine.py"));
    scratch_expect(soaks[_i].status, soaks[_i].says,
                   "check --exec '/usr/bin/python3 %s' "
                   "--claims docs/examples/numpy_attention.json --soak 0.01",
                   scratch_path("mine.py"));
}

/* By whatever PyTorch there is: an implementation of its own; a back end, in 16 bits alone; and a
 * back end that no CPU has, which refuses (with ATTN_FULL: a start of PyTorch takes a second). */
static const struct {
    const char *command, *claims, *says;
    int status, passes; /* passes: at least */
} torch_programs[] = {
    {"torch_attention.py", "torch_attention.json", " 0 fail,", 0, 60},
    {"torch_sdpa.py --device cpu --backend math", "torch_math.json", " 0 fail,", 0, 5},
    {"torch_sdpa.py --device cpu --backend cudnn", "torch_cudnn.json", "all were refused, ", 2, 0},
};

TEST_EACH(torch_examples, COUNT(torch_programs) - (getenv("ATTN_FULL") == NULL))
{
    if (!fixture_python("torch"))
        return;
    scratch_shell(0, "", "sed 's/\"f64\", \"f32\", \"bf16\"/\"bf16\"/' docs/examples/%s >'%s'",
                  torch_programs[_i].claims, scratch_path("torch.json"));
    scratch_expect(torch_programs[_i].status, torch_programs[_i].says,
                   "check --exec '/usr/bin/python3 docs/examples/%s' --claims '%s'%s",
                   torch_programs[_i].command, scratch_path("torch.json"), fixture_some_cases());
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), torch_programs[_i].passes);
}

/* Offline: vectors here, numpy anywhere, results back; then one number is changed. */
TEST(numpy_offline)
{
    char folder[512];
    if (!fixture_python("numpy"))
        return;
    snprintf(folder, sizeof folder, "%s", scratch_path("v"));
    scratch_expect(0, "", "vectors '%s' --claims docs/examples/numpy_attention.json --case ties%s",
                   folder, fixture_some_cases());
    scratch_shell(0, "", "/usr/bin/python3 docs/examples/numpy_attention.py '%s' '%s' >/dev/null",
                  folder, folder);
    scratch_expect(0, "", "check --results '%s'", folder);
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), 20);
    scratch_shell(0, "",
                  "printf '\\0\\0\\0\\77' | dd of='%s/ties/lse.npy' bs=1 seek=132 "
                  "conv=notrunc 2>/dev/null",
                  folder);
    scratch_expect(1, "FAIL(bound)", "check --results '%s' --case ties", folder);
}

static int build_cpp(const char *path)
{
    if (fixture_shell("command -v g++ >/dev/null 2>&1") != 0) {
        fprintf(stderr, "external: skipped: no g++ here\n");
        return 0;
    }
    scratch_shell(0, "",
                  "g++ -O2 -std=c++17 -shared -fPIC -I. -o '%s' "
                  "docs/examples/cpp_attention.cpp",
                  path);
    return 1;
}

TEST(cpp_example)
{
    const char *path = scratch_path("cpp.so");
    if (!build_cpp(path))
        return;
    scratch_expect(0, "", "check --plugin '%s'%s", path, fixture_some_cases());
    ck_assert_int_ge(fixture_count(scratch_output, "pass"), 20);
}

/* ---- honest code of other authors ------------------------------------------------------------ */

/* Not `hard`: a tile multiplies the V of keys behind the causal edge by 0, and 0 times NaN
 * shows. */
#define FLASH(tile, base, order, arithmetic, types)                                           \
    {                                                                                         \
        "numpy",                                                                              \
            "/usr/bin/python3 tests/external/numpy_flash.py " #tile " " #base " " #order      \
            " " arithmetic,                                                                   \
            "{\"name\": \"flash\", \"claims\": [" types                                       \
            ", \"backward\", \"gqa\", \"cross\", \"dv\", \"kv-shared\", "                     \
            "\"softcap\", \"alibi\", \"bias\", \"dbias\", \"dlse\", \"scale\", \"empty\", "   \
            "\"band\", \"dense\"], \"arithmetic\": \"" arithmetic "\", \"block\": " #tile "}" \
    }
#define F32(tile, base, order) \
    FLASH(tile, base, order, "f32", "\"f32\", \"f64\", \"bf16\", \"f16\"")
#define FUSED(tile, base, order) FLASH(tile, base, order, "fused-16", "\"bf16\", \"f16\"")
static const struct {
    const char *module, *command, *claims; /* claims: NULL: beside the example */
} honest[] = {F32(17, 2, down),
              FUSED(16, 2, up),
              F32(17, e, up),
              F32(5, 2, up),
              F32(5, e, down),
              FUSED(5, e, down),
              {"torch", "/usr/bin/python3 docs/examples/torch_attention.py", NULL},
              {NULL, "docs/examples/cpp_attention.cpp", NULL}};

/* None of their cases may fail: of the first two in some of the quick tier (test_packed.c has an
 * honest command in all of it, the battery honest arithmetic), with ATTN_FULL of each in the full
 * tier and in 30 seconds of soak. */
TEST_EACH(honest_code_passes, getenv("ATTN_FULL") != NULL ? COUNT(honest) : 2)
{
    char route[2048];
    int full = getenv("ATTN_FULL") != NULL;
    if (honest[_i].module == NULL) {
        snprintf(route, sizeof route, "--plugin '%s'", scratch_path("cpp.so"));
        if (!build_cpp(scratch_path("cpp.so")))
            return;
    } else {
        const char *claims = honest[_i].claims != NULL ? scratch_put("c.json", honest[_i].claims,
                                                                     strlen(honest[_i].claims))
                                                       : "docs/examples/torch_attention.json";
        snprintf(route, sizeof route, "--exec '%s' --claims '%s'", honest[_i].command, claims);
        if (!fixture_python(honest[_i].module))
            return;
    }
    scratch_expect(0, "", "check %s --tier %s%s", route, full ? "full" : "quick",
                   fixture_some_cases());
    if (full)
        scratch_expect(0, "", "check %s --soak 30", route);
}
