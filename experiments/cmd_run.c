/* attnlab run: compute attention on tensors from files, write the results, judge them. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli.h"
#include "experiments/problem/file_problem.h"
#include "tests/harness/files/fileio.h"
#include "tests/harness/files/folder.h"

static const char help[] =
    "usage: attnlab run SPEC --input FILE [--out DIR] [--compare] [options]\n"
    "       attnlab run SPEC --q FILE --k FILE --v FILE [--do FILE] [--dlse FILE] [--bias FILE]\n"
    "                        [--key-mask FILE] [--out DIR] [--compare] [options]\n"
    "\n"
    "Compute O and LSE, and with dO also dQ, dK and dV, by the implementation SPEC names.\n"
    "FILE is safetensors, .npy or .npz (docs/formats.md).  --input takes tensors named q, k, v "
    "and, "
    "where\n"
    "they are there, do, dlse, bias, key_mask; o, lse, dq, dk, dv and dbias are results to "
    "compare\n"
    "with.  Tensors are [B,H,L,d], [H,L,d] or [L,d]; lse is [B,H,L].  Results have as many axes.\n"
    "A cache of keys is no input of its own: give past and new keys as one k, one v.\n"
    "\n"
    "  --out DIR            write the results there; needed unless --compare is given\n"
    "  --format FORMAT      safetensors: DIR/result.safetensors (default); npy: DIR/o.npy, ...\n"
    "  --compare            judge the results, and those in the file, by error bounds; any of\n"
    "                       F64, F32, BF16 and F16 beside any inputs.  What cannot be judged is\n"
    "                       named, and makes the status 2\n"
    "  --only o,lse,...     judge these and leave all other results in the file aside\n"
    "  --dbias              compute the gradient of the bias too\n"
    "  --pass fwd|bwd       default: bwd when there is a do\n"
    "  --mask TEXT          such as 'causal(br)&keys(key_mask)' (attnlab list shows the "
    "language);\n"
    "                       keys, csr and dense take names of tensors in the file\n"
    "  --key-mask FILE      [B,Lk] or [Lk], 0 hides a key; besides --mask\n"
    "  --scale X            default 1/sqrt(d)\n"
    "  --softcap X          scores become X tanh(score / X); 0: none\n"
    "  --alibi S,S,...      one slope for each head: bias -S |i + offset - j|\n"
    "  --alibi-align A      tl, br, or an offset such as +3; needed when Lq != Lk\n"
    "  --layout BHLD|BLHD|BLE|THD\n"
    "                       order of the axes in the files; BLE: [B,L,H*d], heads folded into\n"
    "                       features; THD: packed documents [T,H,d]\n"
    "  --heads H, --kv-heads G\n"
    "                       BLE: heads of q, and of k and v (as many as of q)\n"
    "  --cu-seqlens-q FILE, --cu-seqlens-k FILE\n"
    "                       THD: where documents begin, [n+1]; or tensors of these names\n"
    "\n"
    "Flags win over the file's metadata (mask, scale, softcap, alibi, alibi-align, layout) and "
    "say\n"
    "so where they differ.  Exit status: 0 good, 1 --compare found a disagreement, 2 usage, a "
    "bad\n"
    "file, or something that --compare could not judge, 3 not enough memory or disk.\n";

static const struct option options[] = {{"input", required_argument, NULL, 'V'},
                                        {"q", required_argument, NULL, 'V'},
                                        {"k", required_argument, NULL, 'V'},
                                        {"v", required_argument, NULL, 'V'},
                                        {"do", required_argument, NULL, 'V'},
                                        {"bias", required_argument, NULL, 'V'},
                                        {"key-mask", required_argument, NULL, 'V'},
                                        {"cu-seqlens-q", required_argument, NULL, 'V'},
                                        {"cu-seqlens-k", required_argument, NULL, 'V'},
                                        {"mask", required_argument, NULL, 'V'},
                                        {"scale", required_argument, NULL, 'V'},
                                        {"softcap", required_argument, NULL, 'V'},
                                        {"alibi", required_argument, NULL, 'V'},
                                        {"alibi-align", required_argument, NULL, 'V'},
                                        {"layout", required_argument, NULL, 'V'},
                                        {"heads", required_argument, NULL, 'V'},
                                        {"kv-heads", required_argument, NULL, 'V'},
                                        {"dlse", required_argument, NULL, 'V'},
                                        {"dbias", no_argument, NULL, 'b'},
                                        {"only", required_argument, NULL, 'V'},
                                        {"pass", required_argument, NULL, 'V'},
                                        {"out", required_argument, NULL, 'V'},
                                        {"format", required_argument, NULL, 'V'},
                                        {"compare", no_argument, NULL, 'c'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

/* Flags that contradict each other, before any file is touched. */
static int check_request(const struct attn_request *r)
{
    const char *each = NULL;
    for (int i = 0; i < ATTN_FILE_PROBLEM_INPUTS; i++)
        if (r->file[i] != NULL)
            each = attn_file_problem_input_name((enum attn_file_problem_input)i);
    if (r->input != NULL && each != NULL)
        return attn_cli_fail(
            "run", ATTN_EXIT_USAGE,
            "--input and the file of '%s' together: tensors come from one file, or "
            "each from its own",
            each);
    if (r->input == NULL && (!r->file[ATTN_FILE_PROBLEM_Q] || !r->file[ATTN_FILE_PROBLEM_K] ||
                             !r->file[ATTN_FILE_PROBLEM_V]))
        return attn_cli_fail("run", ATTN_EXIT_USAGE,
                             "tensors are missing: --input FILE, or --q, --k and --v");
    if (r->out == NULL && !r->compare)
        return attn_cli_fail("run", ATTN_EXIT_USAGE,
                             "--out DIR says where results go (or --compare judges them)");
    if (r->only != NULL && !r->compare)
        return attn_cli_fail("run", ATTN_EXIT_USAGE, "--only says what --compare judges");
    if (strcmp(r->format, "safetensors") != 0 && strcmp(r->format, "npy") != 0)
        return attn_cli_fail("run", ATTN_EXIT_USAGE, "--format '%s': safetensors and npy exist",
                             r->format);
    return ATTN_EXIT_GOOD;
}

/* Returns an exit status; *done when there is nothing left to do. */
static int read_flags(int argc, char **argv, struct attn_request *r, int *done)
{
    memset(r, 0, sizeof *r);
    *done = 1;
    optind = 0; /* GNU: start anew, argv[0] being the name of the subcommand */
    if (attn_cli_options("run", argc, argv, options, NULL) != ATTN_EXIT_GOOD)
        return ATTN_EXIT_USAGE;
    for (int flag, index; (flag = getopt_long(argc, argv, "", options, &index)) != -1;) {
        if (flag == 'h')
            return attn_cli_help(help);
        if (flag == 'V')
            *attn_request_place(r, options[index].name) = optarg;
        r->compare |= flag == 'c';
        r->d_bias |= flag == 'b';
    }
    if (argc - optind != 1)
        return attn_cli_fail("run", ATTN_EXIT_USAGE,
                             argc == optind
                                 ? "which implementation?  attnlab run SPEC --input FILE ..."
                                 : "one SPEC only; '%s' is left over",
                             argv[argc - 1]);
    r->spec = argv[optind];
    if (r->format == NULL)
        r->format = "safetensors";
    *done = 0;
    return check_request(r);
}

static int finish(enum attn_status status, struct attn_error *err)
{
    attn_clean(err->text);
    return attn_cli_fail("run", attn_cli_status(status), "%s", err->text);
}

int attn_cmd_run(int argc, char **argv)
{
    struct attn_request request;
    struct attn_file_problem files;
    struct attn_error err = {0};
    struct attn_file_problem_found found = {0};
    int done, exit_status = read_flags(argc, argv, &request, &done);
    if (done || exit_status != ATTN_EXIT_GOOD)
        return exit_status;
    enum attn_status status = attn_file_problem_open(&request, &files, &err);
    if (status == ATTN_OK)
        status = attn_file_problem_price(&files, &err);
    if (status == ATTN_OK && request.out != NULL)
        status = attn_folder_make(request.out, &err); /* before the work, not after it */
    if (status == ATTN_OK)
        status = attn_file_problem_run(&files, &err);
    if (status != ATTN_OK)
        exit_status = finish(status, &err);
    if (status == ATTN_OK && request.out != NULL) {
        status = attn_file_problem_write(&files, &err);
        if (status != ATTN_OK)
            exit_status = finish(status, &err);
    }
    if (status == ATTN_OK && request.compare) {
        status = attn_file_problem_compare(&files, &found, &err);
        exit_status =
            status != ATTN_OK ? finish(status, &err) : attn_file_problem_found_exit(&found);
    }
    attn_file_problem_close(&files);
    int flushed = attn_cli_flush("run");
    return flushed != ATTN_EXIT_GOOD ? flushed : exit_status;
}
