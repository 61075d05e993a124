/* Words that others wrote reach a terminal, and another program, as text and nothing else; a folder
 * that a user names is that folder. */
#include "tests/suites.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/fileio.h"

SUITE(terminal, .open = scratch_open, .close = scratch_close);

/* ESC, C1 as a character and as a byte, three marks of direction, a byte of no UTF-8, overlong, a
 * surrogate, and a line that looks like ours. */
#define HOSTILE \
    "\033[31m\302\233\233\342\200\256\342\201\246\330\234\377\300\257\355\240\200\r\nFORGED"

/* ---- one text -------------------------------------------------------------------------------- */

TEST(clean_text)
{
    static const char *const row[][2] = {
        {"plain \"q\" ~", "plain \"q\" ~"},
        {"\303\251 \342\202\254 \360\237\230\200 \302\240",
         "\303\251 \342\202\254 \360\237\230\200 \302\240"},
        {"a\033[0m\n\t\r\177b", "a?[0m????b"},
        {"\302\200\302\237", "????"},                          /* C1 */
        {"\233", "?"},                                         /* the same as a byte */
        {"\342\200\216\342\200\217", "??????"},                /* U+200E, 200F */
        {"\342\200\250\342\200\252\342\200\256", "?????????"}, /* U+2028, 202A, 202E */
        {"\342\201\246\342\201\251\330\234", "????????"},      /* U+2066, 2069, 061C */
        {"\342\200\220\342\201\245\330\233", "\342\200\220\342\201\245\330\233"}, /* beside them */
        {"\300\257 \340\200\257 \360\200\200\257", "?? ??? ????"},                /* overlong '/' */
        {"\355\237\277\355\240\200\355\277\277", "\355\237\277??????"},           /* surrogates */
        {"\364\217\277\275\364\220\200\200\370",
         "\364\217\277\275?????"},                                      /* U+10FFFF is the last */
        {"\357\277\275\357\277\276\357\277\277", "\357\277\275??????"}, /* U+FFFE, FFFF: no XML */
        {"\342\202", "??"},                                             /* cut off */
        {"\342\202x\360\237\230", "??x???"},
    };
    for (int r = 0; r < COUNT(row); r++) {
        char text[64];
        snprintf(text, sizeof text, "%s", row[r][0]);
        attn_clean(text);
        ck_assert_msg(strcmp(text, row[r][1]) == 0, "row %d: '%s'", r, text);
    }
    char cut[4];
    ck_assert_str_eq(attn_cleaned("\303\251\303\251", cut, sizeof cut), "\303\251");
    char begun[] = "a\t\342\202";
    ck_assert_uint_eq(attn_clean_part(begun, 4, "\t", 0), 2); /* two of three bytes wait */
    ck_assert_str_eq(begun, "a\t\342\202");
}

/* ---- whole programs -------------------------------------------------------------------------- */

/* ASCII and lines; what the hostile words began no line with. */
static void expect_harmless(const char *line)
{
    for (const char *p = scratch_output; *p != '\0'; p++)
        ck_assert_msg((*p >= ' ' && *p < 127) || *p == '\n', "%s\nbyte %d, '%.20s' in:\n%.2000s",
                      line, (unsigned char)*p, p, scratch_output);
    ck_assert_msg(strstr(scratch_output, "\nFORGED") == NULL, "%s\nbegins a line:\n%.2000s", line,
                  scratch_output);
}

/* Tensors and programs of hostile names; where they are comes from $folder. */
static void put_hostile(void)
{
    scratch_safetensors("name.st",
                        "{\"a\\u001b[31m\\u009b\\u202e\\u2066\\r\\nFORGED\":"
                        "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                        4);
    static const char command[] = "#!/bin/sh\nprintf '" HOSTILE "\\n' | tee /dev/stderr\nexit 3\n",
                      claims[] = "{\"name\": \"a\\u001b\\u009b\\u202e\\nFORGED\", "
                                 "\"claims\": [\"f32\"]}";
    scratch_put(HOSTILE, command, sizeof command - 1);
    scratch_put("claims", claims, sizeof claims - 1);
    setenv("folder", scratch_path(""), 1);
    setenv("bad", HOSTILE, 1);
    setenv("plugin", test_build(), 1);
    scratch_shell(0, "",
                  "chmod +x \"$folder/$bad\" && cp \"$plugin/plugins/bad.so\" \"$folder/$bad.so\"");
}

TEST(nothing_raw_is_printed)
{
    static const struct scratch_row row[] = {
        {"compare $folder/name.st $folder/name.st --rule exact", 0, "agrees"},
        {"compare $folder/name.st \"$bad\" --rule exact", 2, "No such file"},
        {"\"$bad\"", 2, "no command"},
        {"list \"$bad\"", 2, "nothing is called"},
        {"list \"--$bad\"", 2, "no such flag"},
        {"list masks --length 4 --mask \"$bad\"", 2, ""},
        {"price dense --length 8 --mask \"csr($bad)\"", 2, ""},
        {"price \"$bad\" --length 8", 2, ""},
        {"check dense --case \"$bad\"", 2, "is no case"},
        {"check --plugin \"$folder/$bad\"", 2, ""},
        {"check --exec \"'$folder/$bad'\" --claims $folder/claims --case ties", 2, "said: FORGED"},
        {"measure --plan \"$bad\" --out x", 2, ""},
        {"report --from \"$bad\" --out $folder/out", 2, ""},
        {"vectors \"$folder/out$bad\" --case ties", 0, "?[31m"},
        {"env", 0, "?[31m"},
        {"check --plugin \"$folder/$bad.so\" --case q8d8:none:f32:normal:s1", 0, "\\377"},
    };
    put_hostile();
    setenv("OMP_STRANGE", HOSTILE, 1);
    for (int r = 0; r < COUNT(row); r++) {
        int got = scratch_attnlab("%s", row[r].arguments);
        expect_harmless(row[r].arguments);
        ck_assert_msg(strstr(scratch_output, row[r].says) != NULL && got == row[r].status,
                      "%s\nstatus %d: %.2000s", row[r].arguments, got, scratch_output);
    }
    scratch_again(0, "1 pass"); /* what is octal for a terminal is that name for a shell */
}

/* A program of a hostile name that says hostile words, to a reader of its own each: bytes are
 * harmless, and a parser that is none of ours takes them. */
TEST_EACH(other_programs_can_read_it, 2)
{
    static const struct {
        const char *format, *has, *parse;
    } row[] = {
        {"junit", "<error",
         "import xml.etree.ElementTree as x; assert len(list(x.parse(f).iter('testcase'))) == 1"},
        {"json", "\"verdict\": \"ERROR\"",
         "import json; assert len(json.load(f)['specs'][0]['checks']) == 1"},
    };
    put_hostile();
    scratch_attnlab("check --exec \"'$folder/$bad'\" --claims $folder/claims --case ties "
                    "--format %s 2>$folder/said | tee $folder/out; cat $folder/said",
                    row[_i].format);
    expect_harmless(row[_i].format);
    scratch_has(row[_i].has);
    scratch_has("FORGED");
    if (system("command -v python3 >/dev/null") != 0)
        printf("%s: no python3: not parsed\n", row[_i].format);
    else
        scratch_shell(0, "", "python3 -c \"f = open('$folder/out', 'rb'); %s\"", row[_i].parse);
}

/* ---- folders --------------------------------------------------------------------------------- */

/* A gnuplot that draws at once, where it is started; it takes a name with '-' for a flag. */
static const char gnuplot[] =
    "#!/bin/sh\nfor name; do :; done\ncase $name in --version) exit ;; -*) exit 9 ;; esac\n"
    "for end in svg png pdf; do echo '<svg>drawn</svg>' >\"${name%.gp}.$end\"; done\n";

/* The one that is named, whatever CDPATH, cd and flags make of its name. */
TEST(pictures_go_where_they_are_told)
{
    static const struct {
        const char *command, *picture;
    } row[] = {
        {"list masks --mask none --length 2 --out a/m.svg", "a/m.svg"},
        {"list masks --mask none --length 2 --out -/m.svg", "-/m.svg"},
        {"list masks --mask none --length 2 --out=-x/m.svg", "-x/m.svg"},
        {"list masks --mask none --length 2 --out -m.svg", "-m.svg"},
        {"list masks --mask none --length 2 --out \"a b'c/-.svg\"", "a b'c/-.svg"},
        {"report --from r.jsonl --out -x", "-x/figures/memory-causal.svg"},
        {"report --from r.jsonl --out a", "a/figures/memory-causal.svg"},
    };
    char program[PATH_MAX + 10];
    snprintf(program, sizeof program, "%s/attnlab", scratch_full_path(test_build()));
    fixture_n_points = 0;
    fixture_add_curves();
    fixture_write_records("r.jsonl");
    scratch_put("gnuplot", gnuplot, sizeof gnuplot - 1);
    setenv("folder", scratch_path(""), 1);
    setenv("attnlab", program, 1);
    scratch_shell(0, "",
                  "cd \"$folder\" && chmod +x gnuplot && mkdir -p \"a b'c\" a -- - -x &&"
                  "mkdir -p o/a/figures o/-/figures o/-x/figures \"o/a b'c\"");
    for (int r = 0; r < COUNT(row); r++)
        scratch_shell(
            0, "<svg>drawn</svg>",
            "cd \"$folder/o\" && cd .. && PATH=$PWD:$PATH CDPATH=$PWD/o && export CDPATH && "
            "\"$attnlab\" %s && cat \"./%s\"",
            row[r].command, row[r].picture);
    scratch_shell(0, "0\n", "cd \"$folder/o\" && find . -type f | wc -l");
}

/* Scripts of the tree, which the shell of a user starts: the answer is theirs, not that of cd. */
TEST(scripts_begin_in_the_tree)
{
    scratch_shell(2, "course: ANSWERS=bad is neither yes nor no",
                  "mkdir -p %s/docs/course && export CDPATH=%s && "
                  "ANSWERS=bad bash docs/course/build.sh . . %s/out",
                  scratch_path(""), scratch_path(""), scratch_path(""));
    ck_assert_msg(strncmp(scratch_output, "course: ", 8) == 0, "%s", scratch_output);
}
