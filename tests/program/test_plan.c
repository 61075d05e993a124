/* Plans: what a text multiplies out to, what its errors say, and where curves stop. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/order.h"
#include "experiments/measure/plan.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(plan, .open = scratch_open, .close = scratch_close);

static const char example[] = "# memory and time against length\n"
                              "rounds = 3 ; repeat = 7\n"
                              "budget = 12.5     # seconds\n"
                              "verify-all = 512\n"
                              "heads = 2 ; dim = 32\n"
                              "\n"
                              "group length-causal\n"
                              "  spec   = dense ring:ranks=2\n"
                              "  spec  += tiled-textbook:bc=32\n"
                              "  length = 256 512 1024\n"
                              "  mask   = causal(br)\n"
                              "  pass   = fwd bwd\n"
                              "  limit dense = 512            # a spec\n"
                              "  limit ring:ranks=2 bwd = 256 # a spec in a pass\n"
                              "group table-other\n"
                              "  heads = 4 ; kv-heads = 2; dv = 16\n"
                              "  spec = dense\n"
                              "  length = 64\n"
                              "  mask = random(0.1,7)\n";

static const struct attn_cli_list no_flags = {.n = 0};

static struct attn_plan plan_of(const char *text)
{
    struct attn_plan plan;
    struct attn_error err = {0};
    ck_assert_msg(attn_plan_parse("p", text, NULL, &plan, &err) == ATTN_OK, "%s", err.text);
    return plan;
}

static int count(const struct attn_plan *plan, const char *group, const char *spec, int64_t length,
                 enum attn_pass pass)
{
    int n = 0;
    for (int64_t i = 0; i < plan->n; i++)
        n += !plan->point[i].is_priced && strcmp(plan->point[i].group, group) == 0 &&
             strcmp(plan->point[i].spec_text, spec) == 0 && plan->point[i].c.n_query == length &&
             plan->point[i].c.pass == pass;
    return n;
}

TEST(multiplied_out)
{
    struct attn_plan plan = plan_of(example);
    ck_assert_int_eq(plan.rounds, 3);
    ck_assert_int_eq(plan.repeat, 7);
    ck_assert(plan.budget_s == 12.5);
    ck_assert(plan.timeout_s == 300);
    ck_assert_int_eq(plan.verify_all, 512);
    /* 3 specs, 3 lengths, 2 passes; the other group: 1 */
    ck_assert_int_eq(plan.n, 18 + 1);
    int priced = 0;
    for (int64_t i = 0; i < plan.n; i++)
        priced += plan.point[i].is_priced;
    /* beyond the limits: of dense one length in two passes, of ring two lengths in one */
    ck_assert_int_eq(priced, 2 + 2);
    ck_assert_int_eq(count(&plan, "length-causal", "dense", 512, ATTN_BACKWARD), 1);
    ck_assert_int_eq(count(&plan, "length-causal", "dense", 1024, ATTN_FORWARD), 0);
    ck_assert_int_eq(count(&plan, "length-causal", "ring:ranks=2", 1024, ATTN_FORWARD), 1);
    ck_assert_int_eq(count(&plan, "length-causal", "ring:ranks=2", 512, ATTN_BACKWARD), 0);
    const struct attn_plan_point *last = &plan.point[plan.n - 1];
    ck_assert_str_eq(last->group, "table-other");
    ck_assert_str_eq(last->text, "h4g2q64d32v16:random(0.1,7):f32:normal:s1");
    ck_assert_int_eq(plan.point[0].c.heads, 2);
    ck_assert_int_eq(plan.point[0].c.kv_heads, 2);
    attn_plan_free(&plan);
}

/* Layers and what they save are lists too. */
TEST(layers_are_multiplied_out)
{
    struct attn_plan plan =
        plan_of("group table-a\nspec = tiled\nlength = 8 16\nlayers = 2 28\n"
                "save = rows inputs\ngroup table-b\nspec = tiled\nlength = 8\n");
    ck_assert_int_eq(plan.n, 8 + 1);
    int rows = 0, deep = 0;
    for (int64_t i = 0; i < 8; i++) {
        rows += plan.point[i].layers.save == ATTN_SAVE_ROWS;
        deep += plan.point[i].layers.n == 28;
    }
    ck_assert_int_eq(rows, 4);
    ck_assert_int_eq(deep, 4);
    ck_assert_int_eq(plan.point[8].layers.n, 0);
    attn_plan_free(&plan);
}

TEST(labels_and_single_samples)
{
    static const char text[] = "group length-a\n"
                               "  spec = dense dense:mask=bool2d\n"
                               "  length = 8 16 32 ; pass = both\n"
                               "  once = 16 ; limit bwd = 16\n"
                               "  label dense:mask=bool2d = A, b # both\n"
                               "group table-other\n"
                               "  spec = dense ; length = 8\n";
    struct attn_plan plan = plan_of(text);
    ck_assert_int_eq(plan.n, 12 + 1);
    for (int64_t i = 0; i < 12; i++) {
        int longest = plan.point[i].c.n_query == 32;
        int backward = plan.point[i].c.pass == ATTN_BACKWARD;
        ck_assert_int_eq(plan.point[i].is_priced, longest && backward);
        ck_assert_int_eq(plan.point[i].is_once, longest && !backward);
    }
    ck_assert_int_eq(json_array_size(plan.labels), 1);
    json_t *want =
        json_pack("{s:s, s:{s:s}}", "group", "length-a", "label", "dense:mask=bool2d", "A, b");
    ck_assert(json_equal(json_array_get(plan.labels, 0), want));
    json_decref(want);
    attn_plan_free(&plan);
}

/* A setting that a group may vary is a list, each value once in each point; values that follow
 * another one follow each of them. */
TEST(extents_are_multiplied_out)
{
    struct attn_plan plan = plan_of("group heads-a\nspec = dense tiled\nlength = 8\nheads = 1 2 4\n"
                                    "batch = 1 2\ndim = 16 32\ndtype = f32 bf16\n");
    ck_assert_int_eq(plan.n, 2 * 3 * 2 * 2 * 2);
    int n[5] = {0};
    for (int64_t i = 0; i < plan.n; i++) {
        const struct attn_case *c = &plan.point[i].c;
        ck_assert_int_eq(c->kv_heads, c->heads);
        ck_assert_int_eq(c->d_value, c->d_key);
        n[c->heads] += c->batch == 2 && c->d_key == 32 && c->dtype == ATTN_BF16;
    }
    ck_assert(n[1] == 2 && n[2] == 2 && n[4] == 2 && n[3] == 0);
    attn_plan_free(&plan);
}

static const struct {
    const char *text, *want;
} bad_plans[] = {
    {"", "p:1: there is no `group NAME`"},
    {"label tiled = all\n", "p:1: label is a group's"},
    {"group lenth-a\n", "group lenth-a (did you mean length?)"},
    {"group table-a\nlable ring:ranks=2 = Ring\n",
     "p:2: unknown key 'lable ring:ranks' (did you mean label?); there are"},
    {"group table-a\nspec = dense\nlength = 8\nlabel dens = D\n",
     "p:4: group table-a: label names 'dens', which is no spec of it"},
    {"group table-a\nspec = ring:ranks=2\nlength = 8\nlabel ring = R\nlabel rings = S\n",
     "p:5: group table-a: label names 'rings'"},
    {"group table-a\nlabel tiled =\n", "needs a value"},
    {"group table-a\nlabel tiled = a\nlabel tiled = b\n", "p:3: the label of tiled is set twice"},
    {"group table-a\nlabel = b\n", "names no curve"},
    {"rounds = 5\n", "there is no `group NAME`"},
    {"rounds = 5\nrepeet = 3\n",
     "p:2: unknown key 'repeet' (did you mean repeat?); there are spec length keys mask pass"},
    {"rounds = 5\n\n\nrounds = 6\n", "p:4: rounds is set twice"},
    {"group table-a\nspec = dense\nlength = 8\ndtype = f32:pass=bwd\n", "behind them :sink=normal"},
    {"group table-a\nspec = dense\nlength = 8\ndtype = f32:kv=shared\nfill = ones\n",
     "V by itself"},
    {"rounds = five\n", "p:1: rounds = 'five' is not an integer from 1 to 1000"},
    {"rounds = 0\n", "p:1: rounds = '0'"},
    {"budget = -1\n", "p:1: budget = '-1' is not a number of seconds"},
    {"budget = nan\n", "p:1: budget = 'nan'"},
    {"kv-heads = 2 3\n", "p:1: kv-heads takes one value"},
    {"kv-heads += 2\n", "p:1: kv-heads takes one value"},
    {"heads = 2 x\n", "p:1: heads = 'x' is not an integer"},
    {"spec =\n", "p:1: spec = needs a value"},
    {"just words\n", "p:1: 'just words' is neither"},
    {"group a b\n", "p:1: a group needs a name"},
    {"group\n", "p:1: a group needs a name"},
    {"group table-a\nspec = dense\nlength = 1\ngroup table-a\n",
     "p:4: there are two groups named table-a"},
    {"group table-a\nspec = sparse\n", "p:2: no implementation is called 'sparse'"},
    {"group table-a\nspec = ring:runks=2\n", "p:2: "},
    {"group table-a\npass = forward\n", "p:2: pass 'forward': there are fwd, bwd and both"},
    {"group table-a\ndtype = f128\n", "p:2: dtype 'f128'"},
    {"group table-a\nfill = zeros\n", "p:2: fill 'zeros'"},
    {"group table-a\nrounds = 3\n", "p:2: rounds is the plan's"},
    {"group table-a\nspec = dense\n", "p:1: group table-a needs spec and length"},
    {"\ngroup table-a\nspec = dense\nlength = 8\nmask = casual(br)\n", "p:5: mask"},
    {"group table-a\nspec = dense\nlength = 8\nheads = 4; kv-heads = 3\n",
     "p:4: 4 heads cannot share 3 kv heads"},
    {"group table-a\nspec = dense dense\nlength = 8\n",
     "p:1: dense q8d64:none:f32:normal:s1 is there twice"},
    {"group table-a\nspec = dense\nlength = 8\nlayers = 2\nsave = all\n",
     "p:5: save 'all': there are probs|rows|inputs"},
    {"group table-a\nspec = dense\nlength = 8\nsave = rows\n",
     "p:4: save is of layers: `layers = N`"},
    {"group table-a\nspec = dense\nlength = 8\nlayers = 2 2\n",
     "of 2 layers, save rows is there twice"},
    {"group table-a\nspec = dense\nlength = 8\nlimit tiled = 4\n",
     "p:4: group table-a: limit names 'tiled'"},
    {"group table-a\nspec = dense\nlength = 8\nlimit = 4\n", "p:4: a limit reads"},
    {"group table-a\nspec = dense\nlength = 8\nlimit dense = many\n", "p:4: a limit reads"},
};

TEST_EACH(bad_plan, COUNT(bad_plans))
{
    struct attn_plan plan;
    struct attn_error err = {0};
    ck_assert_int_eq(attn_plan_parse("p", bad_plans[_i].text, NULL, &plan, &err), ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, bad_plans[_i].want) != NULL, "got: %s", err.text);
    ck_assert_ptr_null(plan.point);
}

/* Ten thousand points are read without comparing all pairs of them; one more is refused. */
TEST(many_points)
{
    struct attn_plan plan;
    struct attn_error err = {0};
    char *text = malloc(200000), *at = text;
    ck_assert_ptr_nonnull(text);
    at += sprintf(at, "group table-a\nspec = dense\nlength =");
    for (int length = 1; length <= ATTN_PLAN_POINTS; length++)
        at += sprintf(at, " %d", length);
    ck_assert_msg(attn_plan_parse("p", text, NULL, &plan, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_eq(plan.n, ATTN_PLAN_POINTS);
    attn_plan_free(&plan);
    sprintf(at, " %d", ATTN_PLAN_POINTS + 1);
    ck_assert_int_eq(attn_plan_parse("p", text, NULL, &plan, &err), ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, "p:1: more than 10000 points") != NULL, "got: %s", err.text);
    sprintf(at, "\ngroup table-b\nspec = dense\nlength = 5 6 5\n");
    ck_assert_int_eq(attn_plan_parse("p", text, NULL, &plan, &err), ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, "more than 10000 points") != NULL, "got: %s", err.text);
    free(text);
}

TEST_EACH(shipped_plans, 2)
{
    static const char *const path[] = {"experiments/plans/report.plan",
                                       "experiments/plans/quick.plan"};
    struct attn_plan plan;
    struct attn_error err = {0};
    ck_assert_msg(attn_plan_read(path[_i], &no_flags, NULL, &plan, &err) == ATTN_OK, "%s",
                  err.text);
    ck_assert_int_gt(plan.n, 20);
    ck_assert(plan.budget_s > 0);
    attn_plan_free(&plan);
}

/* Lengths and masks of every group, and keys of the plan; what is no flag of a file is refused, and
 * no line of the file is named for it. */
TEST(flags_replace_what_a_file_says)
{
    static const struct {
        const char *flag, *value, *want;
    } bad[] = {{"heads", "2", "cannot use --heads '2' beside --plan"},
               {"length", "8,,16", "--length '8,,16': a comma ends an item"},
               {"length", "many", "length = 'many' is not an integer from 0 to"},
               {"rounds", "0", "rounds = '0' is not an integer from 1 to 1000"},
               {"mask", "casual(br)", "p.plan:7: mask"}}; /* of the first group that has it */
    struct attn_cli_list flags = {
        4, {{"length", "8,512"}, {"mask", "none"}, {"rounds", "1"}, {"mask", "window(3,0,br)"}}};
    struct attn_plan plan;
    struct attn_error err = {0};
    scratch_put("p.plan", example, strlen(example));
    ck_assert_msg(attn_plan_read(scratch_path("p.plan"), &flags, NULL, &plan, &err) == ATTN_OK,
                  "%s", err.text);
    ck_assert_int_eq(plan.rounds, 1);
    ck_assert_int_eq(plan.n, 2 * 2 * (3 * 2 + 1)); /* masks, lengths, specs and passes */
    for (int64_t i = 0; i < plan.n; i++) {
        const struct attn_case *c = &plan.point[i].c;
        ck_assert(c->n_query == 8 || c->n_query == 512);
        int is_second = i < 24 ? i >= 12 : i >= 26; /* of each group: the slowest to change */
        ck_assert_str_eq(c->mask, flags.at[is_second ? 3 : 1].value);
    }
    attn_plan_free(&plan);
    for (size_t b = 0; b < COUNT(bad); b++) {
        flags = (struct attn_cli_list){1, {{bad[b].flag, bad[b].value}}};
        ck_assert_int_eq(attn_plan_read(scratch_path("p.plan"), &flags, NULL, &plan, &err),
                         ATTN_EINVAL);
        ck_assert_msg(strstr(err.text, bad[b].want) != NULL, "%s", err.text);
    }
}

TEST(no_plan)
{
    struct attn_plan plan;
    struct attn_error err = {0};
    ck_assert_int_eq(attn_plan_read("/nowhere/x.plan", &no_flags, NULL, &plan, &err), ATTN_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
    ck_assert_int_eq(attn_plan_read("/tmp", &no_flags, NULL, &plan, &err), ATTN_EINVAL);
}

/* ---- curves ------------------------------------------------------------------------------- */

/* Lengths 64, 16 and 32 in two passes, of work L^2, of which nothing is known. */
static struct curves {
    struct attn_plan plan;
    struct attn_sweep_state state[6];
    struct attn_curve curve[6];
} fixture;

static struct attn_sweep_state *open_curves(void)
{
    memset(&fixture, 0, sizeof fixture);
    fixture.plan = plan_of("timeout = 50\ngroup table-g\nspec = dense\nlength = 64 16 32\n"
                           "pass = fwd bwd\n");
    ck_assert_int_eq(fixture.plan.n, 6);
    for (int i = 0; i < 6; i++) {
        struct attn_sweep_state *state = &fixture.state[i];
        state->plan = &fixture.plan.point[i];
        state->work = (double)(state->plan->c.n_query * state->plan->c.n_query);
        attn_point_init(&state->point);
    }
    attn_curves_link(fixture.state, 6, fixture.curve);
    return fixture.state;
}

/* It ended so, after two thirds of these seconds for its first call and one third for its
 * verification. */
static void ended(struct attn_sweep_state *state, enum attn_point_status status, double seconds)
{
    state->point.status = status;
    state->point.first_s = seconds * 2 / 3;
    state->point.verify_s = seconds / 3;
    attn_curve_note(state, &state->point);
}

static void expect_verdict(const struct attn_sweep_state *state, double left_s, const char *says)
{
    char message[ATTN_RECORD_TEXT] = "";
    enum attn_point_status status = attn_curve_verdict(state, &fixture.plan, left_s, message);
    ck_assert_int_eq(status, says == NULL ? ATTN_POINT_OK : ATTN_POINT_DROPPED);
    ck_assert_msg(says == NULL || strstr(message, says) != NULL, "%s", message);
}

TEST(the_cheapest_first)
{
    struct attn_sweep_state *state = open_curves(), *order[6];
    for (int i = 0; i < 6; i++)
        order[i] = &state[i];
    attn_curves_sort(order, 6);
    static const int want[] = {1, 4, 2, 5, 0, 3};
    for (int i = 0; i < 6; i++)
        ck_assert_ptr_eq(order[i], &state[want[i]]);
    attn_plan_free(&fixture.plan);
}

/* Nothing is known: it is tried.  Else the last time grows with the work: four times as much. */
TEST(begun_within_its_limits)
{
    struct attn_sweep_state *state = open_curves();
    expect_verdict(&state[0], 1e-3, NULL);
    expect_verdict(&state[0], 0, "the budget of 0 s is used up");
    ended(&state[1], ATTN_POINT_OK, 3); /* 16 times at length 64 */
    expect_verdict(&state[2], 12.1, NULL);
    expect_verdict(&state[2], 11.9, "about 12.0 s; 11.9 s of the budget");
    expect_verdict(&state[0], 48.1, NULL);
    expect_verdict(&state[3], 1, NULL); /* of another pass nothing is known */
    ended(&state[2], ATTN_POINT_OK, 12.6);
    expect_verdict(&state[0], 1e9, "about 50.4 s; the time limit is 50 s");
    ended(&state[2], ATTN_POINT_OK, 1); /* a later round, without verification: no less */
    expect_verdict(&state[0], 1e9, "about 50.4 s");
    attn_plan_free(&fixture.plan);
}

/* A point that fails stops the dearer ones on its curve, and nothing else; a wrong result stops
 * nothing. */
TEST_EACH(a_curve_stops, ATTN_POINT_ERROR + 1)
{
    static const int stops[ATTN_POINT_ERROR + 1] = {[ATTN_POINT_TOO_BIG] = 1,
                                                    [ATTN_POINT_DROPPED] = 1,
                                                    [ATTN_POINT_TIMEOUT] = 1,
                                                    [ATTN_POINT_KILLED] = 1,
                                                    [ATTN_POINT_OUT_OF_MEMORY] = 1};
    struct attn_sweep_state *state = open_curves();
    ended(&state[0], (enum attn_point_status)_i, 1);
    ended(&state[2], (enum attn_point_status)_i, 1);
    expect_verdict(&state[1], 1e9, NULL);
    expect_verdict(&state[2], 1e9, NULL); /* itself is not cheaper */
    expect_verdict(&state[3], 1e9, NULL); /* another pass */
    expect_verdict(&state[0], 1e9, stops[_i] ? "length 32 ended as" : NULL);
    attn_plan_free(&fixture.plan);
}
