/* The grammar of the command line: flags are defined once (flags.def), each command lists those it
 * takes and where their values go, and attn_command_run does the rest.  Help, man pages and
 * completion are made from the same lists.
 *
 *      attnlab COMMAND [OPERAND | --flag VALUE | --flag=VALUE | --switch]...  [--] [OPERAND]...
 *
 * -h is --help and -V is --version, in every command.  A flag may be given once, unless its kind is
 * a list.  Whole numbers take k, M and G (thousands) and Ki, Mi and Gi (powers of 1,024). */
#ifndef EXPERIMENTS_CLI_FLAGS_H
#define EXPERIMENTS_CLI_FLAGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ref/attn.h"

enum attn_flag {
    ATTN_FLAG_END,
#define ATTN_FLAG(id, name, kind, value, least, most, help) ATTN_FLAG_##id,
#include "experiments/cli/flags.def"
#undef ATTN_FLAG
    ATTN_FLAG_TITLE /* no flag: its help is a line between others */
};

enum attn_flag_kind {
    ATTN_KIND_AS_DEFINED,
    ATTN_KIND_SWITCH,   /* int: 1                                                        */
    ATTN_KIND_TEXT,     /* const char *                                                  */
    ATTN_KIND_LIST,     /* struct attn_cli_list: may be given again                      */
    ATTN_KIND_ITEMS,    /* the same; one value may hold several, with ';' between them   */
    ATTN_KIND_ONCE,     /* the same list, but given once                                 */
    ATTN_KIND_COUNT,    /* int64_t                                                       */
    ATTN_KIND_REAL,     /* double, from `least` up                                       */
    ATTN_KIND_POSITIVE, /* double, above 0                                               */
    ATTN_KIND_WORD      /* int: which of the words of `value`                            */
};

/* Values in the order given, with the flags that they were given by. */
struct attn_cli_list {
    int n;
    struct {
        const char *flag, *value;
    } at[256];
};

/* A flag of a command. */
struct attn_flag_use {
    enum attn_flag flag;
    size_t to;          /* where in the struct of the command's values it goes     */
    const char *preset; /* its value when it is not given; NULL: zero, or nothing  */
    enum attn_flag_kind kind;
    const char *value, *help; /* where they differ from flags.def                      */
};

/* ATTN_TAKES(ID, place): what else there is to say comes behind it, the preset first. */
#define ATTN_TAKES(id, ...)                       \
    {                                             \
        .flag = ATTN_FLAG_##id, .to = __VA_ARGS__ \
    }

/* A command.  Texts: lines of usage after "attnlab "; paragraphs with blank lines between them. */
struct attn_cli_command {
    const char *name, *summary;
    const char *usage, *about;
    const struct attn_flag_use *flags; /* the last is ATTN_FLAG_END */
    const char *more;                  /* after the flags: examples, notes; NULL: none */
    const char *exits;                 /* its exit statuses, in one paragraph; NULL: see `help` */
    const char *words;                 /* for completion: operands that are words, each with a blank
                                          behind it; NULL: none, or SPECs */
    int operands_least, operands_most; /* -1: any number */
    int computes;        /* asks for an instruction set: ATTN_ISA must name one that is here */
    int internal;        /* of no use to people: not in the list of commands */
    size_t size;         /* of the struct of its flags' values, which are there before it runs */
    const void *initial; /* what that struct holds before any flag; NULL: zeros */
    int (*run)(void *values, int n, char **operand); /* an exit status */
};

extern const struct attn_cli_command attn_cmd_help; /* cmd_help.c, which knows them all */

/* The command of a name; NULL: none. */
const struct attn_cli_command *attn_command_find(const char *name);

/* "attnlab: no command 'NAME'" on standard error, with what may have been meant; USAGE. */
int attn_command_unknown(const char *name);

/* All of them, with their summaries. */
void attn_command_print_list(FILE *file);

/* Read the arguments into a struct of values, presets first, then what is given; run the command;
 * write what it printed.  Returns the exit status.  Values are borrowed from argv, which is cut
 * where one holds several. */
int attn_command_run(const struct attn_cli_command *command, int argc, char **argv);

/* The command that was given, with all it takes. */
void attn_cli_print_help(FILE *file, const struct attn_cli_command *command);

/* cmd_help.c makes pages of these: name, value, help, preset ("" when there is none), and the words
 * of a WORD (else ""). */
struct attn_flag_shown {
    const char *name, *value, *help, *preset;
    int words;
};
struct attn_flag_shown attn_flag_show(const struct attn_flag_use *use);

/* Take SPECs that stand alone as keys of a plan, like others.  EINVAL: more than a list holds. */
enum attn_status attn_cli_take_specs(struct attn_cli_list *keys, int n, char *const *spec,
                                     struct attn_error *err);

#endif
