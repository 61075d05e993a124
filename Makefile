# attnlab: one Makefile, not recursive.  `make help` lists the targets.
#
# Objects go to build/CONFIG/, so configurations never mix.  Sources are found by wildcard: a new
# implementation needs its file and its line in optimized/impls.def, nothing here.

CONFIG  ?= release
CC      ?= gcc
CFLAGS  ?=
LDFLAGS ?=
B       := build/$(CONFIG)

# As many jobs as processors, unless -j says otherwise.
ifeq ($(filter -j% --jobs%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

# Short lines by default; V=1 shows the commands.
V ?= 0
ifeq ($(V),0)
Q := @
say = @printf '  %-4s %s\n' $(1) '$(2)'
else
say = @:
endif

# style: ref/ and the checker must see IEEE arithmetic as written; nothing is ever fast-math, and
# nothing is tuned to the machine it is built on.
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion \
        -Wdouble-promotion -Wvla -Wno-sign-conversion
BASE := -std=c11 -D_GNU_SOURCE -I. -fPIC -fvisibility=default -ffp-contract=off -pthread -MMD -MP $(WARN)
OPT_release := -O3 -g
OPT_debug   := -O0 -g3
OPT_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
OPT_lint    := -O2 -Werror
OPT_lint-clang := -O2 -Werror
OPT_clang   := -O3 -g
ifeq ($(CONFIG),clang)
CC := clang
endif
FLAGS := $(BASE) $(OPT_$(CONFIG)) $(CFLAGS)
LINK   = $(CC) $(FLAGS) $(LDFLAGS)

# ---- what is built -----------------------------------------------------------------------------

LIB_SRC     := $(sort $(wildcard ref/*.c optimized/*.c optimized/parallel/*.c))
HARNESS_SRC := $(sort $(wildcard tests/harness/*.c))
PROGRAM_SRC := $(sort $(wildcard experiments/*.c))
TEST_SRC    := $(sort $(wildcard tests/*.c tests/variants/*.c))
obj          = $(patsubst %.c,$(B)/%.o,$(1))
LIB_OBJ     := $(call obj,$(LIB_SRC))
HARNESS_OBJ := $(call obj,$(HARNESS_SRC))
PROGRAM_OBJ := $(call obj,$(PROGRAM_SRC))
TEST_OBJ    := $(call obj,$(TEST_SRC))
PROGRAM_LIB := $(filter-out $(B)/experiments/attnlab.o,$(PROGRAM_OBJ)) # all but main(): for tests

# Expanded when a recipe runs, that is after what is missing has been installed.
JSON_LIBS  = $(shell pkg-config --libs jansson)
GSL_LIBS   = $(shell pkg-config --libs gsl)
CHECK_LIBS = $(shell pkg-config --libs check)

VERSION := $(shell git describe --always --dirty 2>/dev/null || echo unknown)

all: $(B)/libattn.a $(B)/attnlab ## the library and the program (build/CONFIG/attnlab)

# ---- set-up ------------------------------------------------------------------------------------

build/.ready: .ci/install
	@bash .ci/install
	@mkdir -p build && touch $@

$(B)/%.o: %.c | build/.ready
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$(Q)$(CC) $(FLAGS) -c -o $@ $<

# The program reports how it was built.
$(B)/experiments/machine.o: FLAGS += -DATTN_BUILD_FLAGS='"$(strip $(OPT_$(CONFIG)) $(CFLAGS))"'
# Rebuilt when the version changes, and only then.
$(B)/version.h: FORCE
	@mkdir -p $(@D); printf '#define ATTN_VERSION "%s"\n' '$(VERSION)' > $@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(PROGRAM_OBJ): FLAGS += -I$(B)
$(PROGRAM_OBJ): | $(B)/version.h

$(B)/libattn.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,ar,$@)
	$(Q)$(AR) rcs $@ $^

$(B)/libharness.a: $(HARNESS_OBJ)
	@rm -f $@
	$(call say,ar,$@)
	$(Q)$(AR) rcs $@ $^

$(B)/attnlab: $(PROGRAM_OBJ) $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(JSON_LIBS) $(GSL_LIBS) -lm

# Tests see every call of the allocator (tests/wrap.h): bytes that the library takes outside its
# ledger fail, and any take can be made to fail.
comma := ,
WRAP  := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc aligned_alloc posix_memalign mmap \
         attn_ledger_take)
$(B)/attn-tests: $(TEST_OBJ) $(PROGRAM_LIB) $(B)/tests/mutants/kill.o \
                  $(B)/tests/mutants/naming.o $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(WRAP) $(CHECK_LIBS) $(JSON_LIBS) $(GSL_LIBS) -lm -ldl

# ---- mutants: the library with one line changed (tests/mutants/mutants.def) ----------------------

MUTANTS    := $(shell sed -n 's/^\([A-Z][A-Z]*-[0-9a-z]*\) .*/\1/p' tests/mutants/mutants.def)
MUTANT_SO  := $(patsubst %,$(B)/mutants/%.so,$(MUTANTS))
$(B)/mutants/%.so: tests/mutants/mutants.def tests/mutants/plant.sh $(LIB_OBJ)
	@CC='$(CC)' FLAGS='$(FLAGS)' LDFLAGS='$(LDFLAGS)' B='$(B)' LIB_OBJ='$(LIB_OBJ)' \
	    bash tests/mutants/plant.sh $* $@

# ---- the example of docs/adding.md: the library with one more file and one more line -------------
# Under a name of its own, ahead of the list: whoever follows the page may call theirs `rows` too.

$(B)/fifth.so: docs/examples/rows.c optimized/impls.def Makefile $(LIB_OBJ)
	@mkdir -p $(B)/fifth/optimized
	@{ echo 'ATTN_IMPL(example_rows)'; cat optimized/impls.def; } > $(B)/fifth/optimized/impls.def
	$(call say,cc,docs/examples/rows.c)
	$(Q)$(CC) $(subst -MMD -MP,,$(FLAGS)) -Dattn_impl_rows=attn_impl_example_rows \
	    -c -o $(B)/fifth/rows.o docs/examples/rows.c
	$(Q)$(CC) -I$(B)/fifth $(subst -MMD -MP,,$(FLAGS)) -c -o $(B)/fifth/registry.o optimized/registry.c
	$(Q)$(LINK) -shared -Wl,-Bsymbolic -o $@ $(B)/fifth/rows.o $(B)/fifth/registry.o \
	    $(filter-out $(B)/optimized/registry.o,$(LIB_OBJ)) -lm

$(B)/mutant-table: $(B)/tests/mutants/table.o $(B)/tests/mutants/kill.o $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(JSON_LIBS) -lm -ldl

$(B)/name-table: $(B)/tests/mutants/name_table.o $(B)/tests/mutants/naming.o $(B)/tests/mutants/kill.o \
              $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(JSON_LIBS) -lm -ldl

$(B)/rule-table: $(B)/tests/mutants/rule_table.o $(B)/tests/mutants/kill.o $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(JSON_LIBS) -lm -ldl

# ---- targets -----------------------------------------------------------------------------------

test: $(B)/attn-tests $(B)/attnlab $(B)/fifth.so $(MUTANT_SO) ## everything that proves the suite right (under 6 minutes on 2 cores)
	ATTN_BUILD=$(B) $(B)/attn-tests

test-full: $(B)/attn-tests $(B)/attnlab $(B)/fifth.so $(MUTANT_SO) ## the same, with the full battery on every variant and long soaks
	ATTN_FULL=1 ATTN_BUILD=$(B) $(B)/attn-tests

mutants: $(B)/mutant-table $(MUTANT_SO) ## plant every known bug and print which case kills it
names: $(B)/name-table $(MUTANT_SO) ## print what the diagnosis says of every mutant, and how often it is right
	@$(B)/name-table $(B)/mutants

	@$(B)/mutant-table $(B)/mutants

check: $(B)/attnlab ## judge one implementation: make check SPEC=ring:ranks=4 [CASE='b1h2q9d8:causal(br):f32:normal:s1']
	$(B)/attnlab check $(if $(SPEC),'$(SPEC)') $(if $(CASE),--case '$(CASE)')

REPORT ?= build/report
report: $(B)/attnlab ## measure, draw and write REPORT/index.html (under 5 minutes on 2 cores)
	$(B)/attnlab report --plan experiments/plans/report.plan --out $(REPORT)

docs: $(B)/attnlab $(B)/mutant-table $(MUTANT_SO) ## make the generated tables in docs/ again
	@for what in implementations cases relations fills bugs; do \
	    { printf '<!-- made by `make docs`, from `attnlab list %s` -->\n\n' $$what; \
	      $(B)/attnlab list $$what --format=md; } > docs/$$what.md || exit 1; done
	@{ printf '<!-- made by `make docs`, from `attnlab list cases --tier full` -->\n\n'; \
	    $(B)/attnlab list cases --tier full --format=md; } > docs/cases-full.md
	@{ printf '<!-- made by `make docs`, from `make mutants` -->\n\n'; $(B)/mutant-table $(B)/mutants; } \
	    > docs/mutants.md

rules: $(B)/rule-table $(MUTANT_SO) ## measure the usual acceptance rules on the mutants and on honest runs: docs/rules.md
	@$(B)/rule-table $(B)/mutants > $(B)/rules.md && mv $(B)/rules.md docs/rules.md

golden: ## make tests/golden/ again by arbitrary-precision arithmetic (libmpfr-dev)
	@mkdir -p $(B)
	$(Q)$(CC) $(filter-out -MMD -MP,$(FLAGS)) -o $(B)/make-golden $(wildcard tests/golden/*.c) -lmpfr -lgmp -lm
	@$(B)/make-golden tests/golden

asan: ## the tests under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory CONFIG=asan test

clang: ## the tests, built by clang
	@$(MAKE) --no-print-directory CONFIG=clang test

lint: | build/.ready ## include direction, headers alone, formatting, warnings as errors (gcc and clang)
	@bash .ci/lint

clean: ## remove build/
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r t d; do printf '  make %-8s %s\n' "$$t" "$$d"; done

FORCE:
.PHONY: all test test-full golden rules mutants names docs check report asan clang lint clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
