/* Plans: what a text multiplies out to, what its errors say, and the rules of the budget. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/budget.h"
#include "experiments/measure/plan.h"
#include "tests/suites.h"

SUITE(plan, .seconds = 60);

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
                              "group other\n"
                              "  heads = 4 ; kv-heads = 2; dv = 16\n"
                              "  spec = dense\n"
                              "  length = 64\n"
                              "  mask = random(0.1,7)\n";

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
    ck_assert_str_eq(last->group, "other");
    ck_assert_str_eq(last->text, "h4g2q64d32v16:random(0.1,7):f32:normal:s1");
    ck_assert_int_eq(plan.point[0].c.heads, 2);
    ck_assert_int_eq(plan.point[0].c.kv_heads, 2);
    attn_plan_free(&plan);
}

/* Layers and what they save are lists too. */
TEST(layers_are_multiplied_out)
{
    struct attn_plan plan = plan_of("group a\nspec = tiled\nlength = 8 16\nlayers = 2 28\n"
                                    "save = rows inputs\ngroup b\nspec = tiled\nlength = 8\n");
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

TEST(figures_and_single_samples)
{
    static const char text[] = "group length-a\n"
                               "  spec = dense dense:mask=bool2d\n"
                               "  length = 8 16 32 ; pass = both\n"
                               "  once = 16 ; limit bwd = 16\n"
                               "  figure = length-x ; title = this = that\n"
                               "  label dense:mask=bool2d = A, b\n"
                               "  colour dense = #0072B2 # blue\n"
                               "  x-range = 8:64 ; y-range memory = 1e3:*\n"
                               "group other\n"
                               "  spec = dense ; length = 8\n";
    struct attn_plan plan = plan_of(text);
    ck_assert_int_eq(plan.n, 12 + 1);
    for (int64_t i = 0; i < 12; i++) {
        int longest = plan.point[i].c.n_query == 32;
        int backward = plan.point[i].c.pass == ATTN_BACKWARD;
        ck_assert_int_eq(plan.point[i].is_priced, longest && backward);
        ck_assert_int_eq(plan.point[i].is_once, longest && !backward);
    }
    ck_assert_int_eq(json_array_size(plan.figures), 1);
    json_t *want = json_pack("{s:s, s:s, s:s, s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}", "group",
                             "length-a", "figure", "length-x", "title", "this = that", "label",
                             "dense:mask=bool2d", "A, b", "colour", "dense", "#0072B2", "x-range",
                             "", "8:64", "y-range", "memory", "1e3:*");
    ck_assert(json_equal(json_array_get(plan.figures, 0), want));
    json_decref(want);
    attn_plan_free(&plan);
}

/* What a group may vary is a list, each value once in each point; values that follow another one
 * follow each of them. */
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
    {"title = all\n", "p:1: title is a group's"},
    {"group a\ncolour dense = red\n", "p:2: colour = 'red' is not of the form #D55E00"},
    {"group a\nx-range = 1\n", "p:2: x-range = '1' is not of the form LOW:HIGH"},
    {"group a\ny-range = 1:9\n", "p:2: y-range = '1:9' does not say of which figure"},
    {"group a\ny-range time error = 1:9\n", "does not say of which figure"},
    {"group a\nx-range tiem = 1:9\n", "does not say of which figure"},
    {"group a\ntitle of = a\n", "p:2: title = 'a' has a word too many"},
    {"group a\nlable ring:ranks=2 = Ring\n", "p:2: unknown key 'lable ring:ranks'; there are"},
    {"group a\nspec = dense\nlength = 8\nlabel dens = D\n",
     "p:1: group a: label names 'dens', which is no spec of it"},
    {"group a\nspec = ring:ranks=2\nlength = 8\nlabel ring = R\ncolour rings = #000000\n",
     "p:1: group a: colour names 'rings'"},
    {"group a\nfigure = both\n", "does not begin with the word of a group"},
    {"group a\ntitle = a\ntitle = b\n", "p:3: title is set twice"},
    {"group a\nlabel = b\n", "names no curve"},
    {"rounds = 5\n", "there is no `group NAME`"},
    {"rounds = 5\nrepeet = 3\n", "p:2: unknown key 'repeet'; there are spec length mask pass"},
    {"rounds = 5\n\n\nrounds = 6\n", "p:4: rounds is set twice"},
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
    {"group a\nspec = dense\nlength = 1\ngroup a\n", "p:4: there are two groups named a"},
    {"group a\nspec = sparse\n", "p:2: no implementation is called 'sparse'"},
    {"group a\nspec = ring:runks=2\n", "p:2: "},
    {"group a\npass = forward\n", "p:2: pass 'forward': there are fwd, bwd and both"},
    {"group a\ndtype = f128\n", "p:2: dtype 'f128'"},
    {"group a\nfill = zeros\n", "p:2: fill 'zeros'"},
    {"group a\nrounds = 3\n", "p:2: rounds is the plan's"},
    {"group a\nspec = dense\n", "p:1: group a needs spec and length"},
    {"\ngroup a\nspec = dense\nlength = 8\nmask = casual(br)\n", "p:2: mask"},
    {"group a\nspec = dense\nlength = 8\nheads = 4; kv-heads = 3\n", "p:1: kv-heads = 3 does not"},
    {"group a\nspec = dense dense\nlength = 8\n",
     "p:1: dense q8d64:none:f32:normal:s1 is there twice"},
    {"group a\nspec = dense\nlength = 8\nlayers = 2\nsave = all\n",
     "p:5: save 'all': there are probs|rows|inputs"},
    {"group a\nspec = dense\nlength = 8\nsave = rows\n", "`layers = N` is needed with it"},
    {"group a\nspec = dense\nlength = 8\nhidden = 8\n", "hidden is of layers: `layers = N`"},
    {"group a\nspec = dense\nlength = 8\nlayers = 2\nhidden = x\n", "hidden = 'x' is not"},
    {"group a\nspec = dense\nlength = 8\nlayers = 2 2\nhidden = 8\n",
     "of 2 layers of hidden 8, save rows is there twice"},
    {"group a\nspec = dense\nlength = 8\nlayers = 2 2\n", "of 2 layers, save rows is there twice"},
    {"group a\nspec = dense\nlength = 8\nlimit tiled = 4\n", "limit names 'tiled'"},
    {"group a\nspec = dense\nlength = 8\nlimit = 4\n", "p:4: a limit reads"},
    {"group a\nspec = dense\nlength = 8\nlimit dense = many\n", "p:4: a limit reads"},
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
    at += sprintf(at, "group a\nspec = dense\nlength =");
    for (int length = 1; length <= ATTN_PLAN_POINTS; length++)
        at += sprintf(at, " %d", length);
    ck_assert_msg(attn_plan_parse("p", text, NULL, &plan, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_eq(plan.n, ATTN_PLAN_POINTS);
    attn_plan_free(&plan);
    sprintf(at, " %d", ATTN_PLAN_POINTS + 1);
    ck_assert_int_eq(attn_plan_parse("p", text, NULL, &plan, &err), ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, "p:1: more than 10000 points") != NULL, "got: %s", err.text);
    sprintf(at, "\ngroup b\nspec = dense\nlength = 5 6 5\n");
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
    ck_assert_msg(attn_plan_read(path[_i], NULL, &plan, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_gt(plan.n, 20);
    ck_assert(plan.budget_s > 0);
    attn_plan_free(&plan);
}

TEST(no_plan)
{
    struct attn_plan plan;
    struct attn_error err = {0};
    ck_assert_int_eq(attn_plan_read("/nowhere/x.plan", NULL, &plan, &err), ATTN_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "No such file"));
    ck_assert_int_eq(attn_plan_read("/tmp", NULL, &plan, &err), ATTN_EINVAL);
}

/* ---- the budget --------------------------------------------------------------------------- */

static const char curve[] = "rounds = 4\nverify-all = 256\ngroup g\nspec = dense\n"
                            "length = 256 512 1024\n";

static struct curve {
    struct attn_plan plan;
    struct attn_sweep_state state[3];
    struct attn_budget budget;
    char done[3][4];
} fixture;

/* A curve of three lengths, of which nothing is known yet: its states. */
static struct attn_sweep_state *open_curve(void)
{
    memset(&fixture, 0, sizeof fixture);
    fixture.plan = plan_of(curve);
    for (int i = 0; i < 3; i++) {
        struct attn_sweep_state *state = &fixture.state[i];
        struct attn_point *p = &state->point;
        state->plan = &fixture.plan.point[i];
        state->done = fixture.done[i];
        state->rounds_left = 4;
        attn_point_init(p);
        strcpy(p->spec, "dense");
        p->c = state->plan->c;
        p->pairs = p->c.n_query * p->c.n_key;
        p->floor_bytes = 4096 * p->c.n_query;
        state->work = 1e9 * (double)(1 << 2 * i); /* L^2 */
    }
    fixture.budget = (struct attn_budget){.plan = &fixture.plan};
    attn_budget_link(fixture.state, 3);
    return fixture.state;
}

/* A round of a first call, one warm call of 1 s, 10 s of verification and half a second more. */
static void measured(struct attn_sweep_state *state, double first_s)
{
    struct attn_point p = state->point;
    p.status = ATTN_POINT_OK;
    p.n_warm = 1;
    p.warm_s[0] = 1;
    p.first_s = first_s;
    p.verify_s = 10;
    p.wall_s = 11.5 + first_s;
    strcpy(p.verified, "all");
    attn_budget_learn(&fixture.budget, state, &p);
}

TEST(predicted_from_what_is_most_like_it)
{
    struct attn_sweep_state *state = open_curve();
    attn_budget_predict(&fixture.budget, &state[2]); /* nothing is known */
    ck_assert(state[2].guessed);
    measured(&state[0], 4);
    ck_assert(state[0].first_s == 15.5 && state[0].later_s == 5.5);
    attn_budget_predict(&fixture.budget, &state[2]);
    ck_assert(!state[2].guessed);
    /* 16 times the flops, one first call and one warm; 4 times the data; the oracle does 64 rows
     * of 1024 keys instead of 256 of 256 */
    ck_assert_double_eq_tol(state[2].later_s, 16 * 4 + 16 + 2, 0.5);
    ck_assert_double_eq_tol(state[2].first_s - state[2].later_s, 10, 0.01);
    measured(&state[1], 2); /* a nearer length is preferred */
    attn_budget_predict(&fixture.budget, &state[2]);
    ck_assert_double_eq_tol(state[2].later_s, 4 * 2 + 4 + 1, 0.5);
    attn_plan_free(&fixture.plan);
}

/* Another curve of the same spec or implementation is used, and one of another pass is not. */
TEST(predicted_from_another_curve)
{
    struct attn_sweep_state *state = open_curve();
    for (int i = 0; i < 3; i++)
        state[i].head = &state[i]; /* as if their masks differed */
    measured(&state[0], 1);
    attn_budget_predict(&fixture.budget, &state[1]);
    attn_budget_predict(&fixture.budget, &state[2]);
    ck_assert(!state[2].guessed);
    strcpy(state[1].point.spec, "dense:mask=int32");
    strcpy(state[0].point.impl, "dense");
    strcpy(state[1].point.impl, "dense");
    attn_budget_predict(&fixture.budget, &state[1]);
    ck_assert(!state[1].guessed);
    state[1].smaller = NULL; /* as above */
    state[1].point.c.pass = ATTN_BACKWARD;
    attn_budget_predict(&fixture.budget, &state[1]);
    ck_assert(state[1].guessed);
    attn_plan_free(&fixture.plan);
}

TEST(promises)
{
    struct attn_sweep_state *state = open_curve();
    ck_assert(attn_budget_promised(state, 3) == 0); /* all are waiting */
    measured(&state[0], 1);
    ck_assert(attn_budget_cost(&state[0]) == 12.5 + 3 * 2.5);
    state[0].state = ATTN_BEGUN;
    state[0].done[0] = 1;
    state[0].rounds_left = 3;
    ck_assert(attn_budget_promised(state, 3) == 7.5);
    state[0].rounds_left = 0;
    ck_assert(attn_budget_promised(state, 3) == 0);
    attn_plan_free(&fixture.plan);
}

/* Courses of two passes in any order: each finds its neighbours; a failure stops what is larger. */
TEST(curves_are_linked)
{
    struct attn_plan plan = plan_of("group g\nspec = dense\nlength = 64 16 32\npass = bwd fwd\n");
    struct attn_sweep_state state[6];
    ck_assert_int_eq(plan.n, 6);
    memset(state, 0, sizeof state);
    for (int i = 0; i < 6; i++)
        state[i].plan = &plan.point[i];
    attn_budget_link(state, 6);
    for (int from = 0; from < 6; from += 3) { /* 64, 16, 32 */
        struct attn_sweep_state *c = &state[from];
        ck_assert(c[1].smaller == NULL && c[1].larger == &c[2] && c[1].head == &c[1]);
        ck_assert(c[2].smaller == &c[1] && c[2].larger == &c[0] && c[2].head == &c[1]);
        ck_assert(c[0].smaller == &c[2] && c[0].larger == NULL && c[0].head == &c[1]);
    }
    ck_assert_ptr_null(attn_budget_stopped(&state[0]));
    state[2].failed = 1;
    attn_budget_stop(&state[2]);
    ck_assert_ptr_eq(attn_budget_stopped(&state[0]), &state[2]);
    ck_assert_ptr_null(attn_budget_stopped(&state[1]));
    ck_assert_ptr_null(attn_budget_stopped(&state[2])); /* itself is not smaller */
    ck_assert_ptr_null(attn_budget_stopped(&state[3])); /* another pass */
    attn_plan_free(&plan);
}
