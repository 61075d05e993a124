# attnlab: one Makefile, not recursive.  `make help` lists the targets.
#
# Objects go to build/CONFIG/, so configurations never mix.  Sources are found by wildcard: a new
# implementation needs its file and its line in optimized/impls.def, nothing here.

CONFIG  ?= release
CC      ?= gcc
CFLAGS  ?=
LDFLAGS ?=
B       := build/$(CONFIG)
.DEFAULT_GOAL := all

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
OPT_release := -O3 -g1
OPT_debug   := -O0 -g3
OPT_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
OPT_tsan    := -O1 -g -fsanitize=thread
OPT_lint    := -O2 -Werror
OPT_core    := $(OPT_release)
OPT_lint-clang := -O2 -Werror
OPT_clang   := -O3 -g1
OPT_fuzz    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all
OPT_arm64   := -O2 -g
ifneq ($(filter clang fuzz,$(CONFIG)),)
CC := clang
endif
FLAGS := $(BASE) $(OPT_$(CONFIG)) $(CFLAGS)
LINK   = $(CC) $(FLAGS) -fopenmp $(LDFLAGS)

# The kernels: one file for each instruction set, and only it gets the compiler's flags for that.
# A file for another architecture is empty here, and gets none.
FLAGS_avx2   := -mavx2 -mfma -mf16c
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl
FLAGS_amx    := $(FLAGS_avx512) -mavx512bf16 -mamx-tile -mamx-bf16
MACHINE       = $(eval MACHINE := $(shell $(CC) -dumpmachine))$(MACHINE)
flags_of      = $(if $(filter optimized/simd/%,$(1)),$(if $(filter x86_64-%,$(MACHINE)),\
                $(FLAGS_$(basename $(notdir $(1))))))

# ---- what is built -----------------------------------------------------------------------------

LIB_SRC     := $(sort $(wildcard ref/*.c ref/*/*.c optimized/*.c optimized/*/*.c optimized/*/*/*.c))
MPI_SRC     := $(wildcard experiments/rim/mpi/*.c experiments/rim/mpi/transport/*.c)
HARNESS_SRC := $(sort $(wildcard tests/harness/*.c tests/harness/*/*.c))
PROGRAM_SRC := $(filter-out experiments/rim/%,$(sort $(wildcard experiments/*.c experiments/*/*.c experiments/*/*/*.c)))
TEST_ROOMS  := ref optimized parallel memory checker program
TEST_SRC    := $(sort $(wildcard tests/*.c $(patsubst %,tests/%/*.c,$(TEST_ROOMS) variants fixtures)))

# The rooms of the rim, code and tests.  The core knows their commands (experiments/cli/commands.def)
# and nothing else of them; CONFIG=core is built without any.
RIM         := $(if $(filter core,$(CONFIG)),,$(wildcard experiments/rim/*))
LIB_SRC     += $(sort $(wildcard $(RIM:%=%/schemes/*.c)))
PROGRAM_SRC += $(filter-out $(MPI_SRC),$(sort $(wildcard $(RIM:%=%/*.c))))
TEST_SRC    += $(filter-out %/mpi_tests.c,$(sort $(wildcard $(RIM:%=%/tests/*.c))))
obj          = $(patsubst %.c,$(B)/%.o,$(1))
LIB_OBJ     := $(call obj,$(LIB_SRC))
HARNESS_OBJ := $(call obj,$(HARNESS_SRC))
PROGRAM_OBJ := $(call obj,$(PROGRAM_SRC))
TEST_OBJ    := $(call obj,$(TEST_SRC))
PROGRAM_LIB := $(filter-out $(B)/experiments/attnlab.o,$(PROGRAM_OBJ)) # all but main(): for tests

# Expanded when a recipe runs, that is after what is missing has been installed.
HARNESS_LIBS = $(shell pkg-config --libs jansson libzip)
GSL_LIBS     = $(shell pkg-config --libs gsl)
CHECK_LIBS   = $(shell pkg-config --libs check)

# The release is the newest heading of CHANGELOG.md; the version is the commit.
RELEASE := $(shell sed -n 's/^.. \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
VERSION := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

all: $(B)/libattn.a $(B)/attnlab ## the library and the program (build/CONFIG/attnlab)

$(TEST_OBJ): | build/.ready-test

# ---- set-up ------------------------------------------------------------------------------------

build/.ready: .ci/install
	@bash .ci/install
	@mkdir -p build && touch $@

# Packages that only some targets need.
build/.ready-%: .ci/install | build/.ready
	@bash .ci/install $*
	@touch $@
READY := build/.ready
ifneq ($(findstring clang,$(CC)),)
READY += build/.ready-clang
endif
ifneq ($(filter arm64 fuzz,$(CONFIG)),)
READY += build/.ready-$(CONFIG)
endif

# The compiler calls this folder by a name that is right in every clone, so that one commit is one
# build: $PWD may be a link, which -ffile-prefix-map would not know.
$(B)/%.o: %.c | $(READY)
	@mkdir -p $(@D)
	$(call say,cc,$<)
	$(Q)PWD=/proc/self/cwd $(CC) $(FLAGS) $(call flags_of,$<) -c -o $@ $<

# Work is dealt to threads in optimized/ alone: ref/ is serial, a kernel and a rank are one thread.
# The thread sanitizer does not know libgomp's locks: without OpenMP it sees the threads of ranks.
OPENMP := $(if $(filter tsan,$(CONFIG)),-Wno-unknown-pragmas -Wno-unused -Wno-unused-parameter,-fopenmp)
$(patsubst %.c,$(B)/%.o,$(wildcard optimized/*.c)): FLAGS += $(OPENMP)

# The checker's loops choose between products (an infinite error of 0 is 0), which gcc makes vectors
# of only when no floating-point exception may trap; and a function may be inlined where it stands.
# Neither changes a result: all is still IEEE arithmetic as written.
$(HARNESS_OBJ) $(B)/ref/oracle/oracle.o: FLAGS += -fno-trapping-math -fno-semantic-interposition

# Tests and the program call what computes, in libraries and tests/variants/; they compute next to
# nothing.  Half the time of compiling them would be the optimiser's.
CALLERS := $(filter-out $(B)/tests/variants/%,$(TEST_OBJ)) $(PROGRAM_OBJ)
$(CALLERS): FLAGS += $(if $(filter release core clang,$(CONFIG)),-O1)
$(B)/experiments/cmd_help.o: FLAGS += $(if $(filter core,$(CONFIG)),-DATTN_CORE)

# A study has its data in it.
$(patsubst %.c,$(B)/%.o,$(wildcard experiments/rim/studies/*.c)): $(wildcard experiments/rim/studies/data/*.csv experiments/rim/cluster/*.cluster)
# The program reports how it was built.
$(B)/experiments/measure/machine.o: FLAGS += -DATTN_BUILD_FLAGS='"$(strip $(OPT_$(CONFIG)) $(CFLAGS))"'
# Rebuilt when the version changes, and only then.
$(B)/version.h: FORCE
	@mkdir -p $(@D); printf '#define ATTN_%s "%s"\n' RELEASE '$(RELEASE)' VERSION '$(VERSION)' > $@.new; \
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
	$(Q)$(LINK) -o $@ $^ $(HARNESS_LIBS) $(GSL_LIBS) -lm

# Tests see every call of the allocator (tests/wrap.h): bytes that the library takes outside its
# ledger fail, and any take can be made to fail.
comma := ,
WRAP  := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc strdup aligned_alloc posix_memalign mmap \
         attn_ledger_take _mark_point pthread_create pthread_join pthread_cond_wait pthread_cond_signal)
$(B)/attn-tests: $(TEST_OBJ) $(PROGRAM_LIB) $(B)/tests/mutants/mutants.o \
                  $(B)/tests/fuzz/targets.o $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(WRAP) $(CHECK_LIBS) $(HARNESS_LIBS) $(GSL_LIBS) -lm -ldl

# The program on processes of MPI: its main() is entered by experiments/rim/mpi/mpi_main.c.
MPI_OBJ  := $(call obj,$(MPI_SRC))
MPI_LIBS  = $(shell mpicc --showme:link)
$(MPI_OBJ) $(B)/experiments/rim/mpi/tests/mpi_tests.o: FLAGS += $(addprefix -isystem ,$(shell mpicc --showme:incdirs))
$(MPI_OBJ) $(B)/experiments/rim/mpi/tests/mpi_tests.o: | build/.ready-mpi
$(B)/attnlab-mpi: $(MPI_OBJ) $(PROGRAM_OBJ) $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ -Wl,--wrap=main $(HARNESS_LIBS) $(GSL_LIBS) $(MPI_LIBS) -lm -ldl
$(B)/mpi-tests: $(B)/experiments/rim/mpi/tests/mpi_tests.o $(filter-out %/mpi_main.o,$(MPI_OBJ)) $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(HARNESS_LIBS) $(MPI_LIBS) -lm

# An external implementation in C, run as a command.
$(B)/faults/dense: tests/external/exec_dense.c $(B)/libharness.a $(B)/libattn.a
	@mkdir -p $(@D)
	@echo '{"name": "dense in C", "claims": ["f32", "cross", "dv", "gqa", "scale", "band", "dense", "backward"]}' > $(@D)/claims.json
	$(Q)$(subst -MMD -MP,,$(LINK)) -w -o $@ $^ $(HARNESS_LIBS) -lm

# Plug-ins of the tests, which have switches.
PLUGINS := $(addprefix $(B)/plugins/,bad.so full.so places.so slips.so)
$(PLUGINS): $(B)/plugins/%.so: tests/external/plugin_%.c tests/external/switches.h docs/examples/plugin_naive.c $(B)/libattn.a
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O3 -w -fPIC -I. $(PLUGIN_FLAGS) -shared -Wl,-Bsymbolic -pthread -o $@ $< \
	    $(B)/libattn.a -lm
$(B)/plugins/bad.so: PLUGIN_FLAGS = -Dattn_plugin_get=naive_get -include docs/examples/plugin_naive.c
$(B)/plugins/full.so: PLUGIN_FLAGS = $(if $(filter asan,$(CONFIG)),-fsanitize=address$(comma)undefined)

# The tests of the kernels for another processor: only what needs the C library and nothing else.
BARE_OBJ := $(call obj,$(shell grep -LE '<(jansson|zip)\.h>' $(HARNESS_SRC)))
$(B)/libbare.a: $(BARE_OBJ)
	@rm -f $@
	$(call say,ar,$@)
	$(Q)$(AR) rcs $@ $^

$(B)/arm64-tests: $(B)/tests/arm64/arm64.o $(B)/tests/fixtures/isa_fixture.o $(B)/libbare.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ -lm

# ---- mutants: the library with one line changed (tests/mutants/mutants.def) ----------------------

MUTANT_DEF := tests/mutants/mutants.def $(wildcard $(RIM:%=%/tests/mutants.def))
MUTANTS    := $(shell sed -n 's/^\([A-Z][A-Z]*-[0-9a-z]*\) .*/\1/p' $(MUTANT_DEF))
MUTANT_SO  := $(patsubst %,$(B)/mutants/%.so,$(MUTANTS))
EQUIVALENT := $(patsubst %,$(B)/mutants/%.so,$(shell awk '/^[A-Z]/ { id = $$1 } /^  = / { print id }' $(MUTANT_DEF)))
MUTANT_C   := $(patsubst %,$(B)/mutants/%.src/unit.c,$(MUTANTS))

# All sources at once; what did not change keeps its time, and is not compiled again.
LIB_HEADERS := $(sort $(wildcard $(addsuffix *.h,$(dir $(LIB_SRC))) $(addsuffix *.def,$(dir $(LIB_SRC)))))
$(B)/mutants/planted: tests/mutants/plant.awk $(MUTANT_DEF) $(LIB_SRC) $(LIB_HEADERS)
	@mkdir -p $(@D)
	@awk -v out=$(@D) -f tests/mutants/plant.awk $(MUTANT_DEF)
	@touch $@
$(MUTANT_C): $(B)/mutants/planted
	@:
$(B)/mutants/headers: $(LIB_HEADERS)
	@mkdir -p $(@D) && touch $@
$(MUTANT_C:.c=.o): %.o: %.c $(B)/mutants/headers | $(READY)
	@$(CC) -I$(@D) $(subst -MMD -MP,,$(FLAGS)) -fopenmp -O0 -g0 -w -c -o $@ $<

# A mutant is its unit alone, and one library serves them all: the loader looks for a name in the
# mutant first, then in the library, also for calls of the library itself.  In one process that holds
# for one mutant.  The equivalent ones run side by side, and each has the library inside.
# (--no-as-needed: a unit may need nothing of the library.)
MUTANT_LINK = $(LINK) -fno-use-linker-plugin -s -shared -Wl,--no-as-needed,-Bsymbolic,-z,muldefs,-rpath,'$$ORIGIN'
$(filter-out $(EQUIVALENT),$(MUTANT_SO)): %.so: %.src/unit.o | $(B)/mutants/library.so
	@$(MUTANT_LINK) -o $@ $< $(B)/mutants/library.so -lm
$(EQUIVALENT): %.so: %.src/unit.o $(B)/mutants/library.o
	@$(MUTANT_LINK) -o $@ $^ -lm

$(B)/mutants/library.so: $(LIB_OBJ)
	@mkdir -p $(@D)
	$(Q)$(LINK) -s -shared -Wl,-soname,library.so -o $@ $^ -lm
$(B)/mutants/library.o: $(LIB_OBJ)
	@mkdir -p $(@D)
	$(Q)$(LD) -r --strip-debug -o $@ $^

# The program with a mistake in it (ALiBi of the wrong sign), to see what it says of itself.
$(B)/attnlab-mistaken: $(PROGRAM_OBJ) $(B)/mutants/SC-01a.src/unit.o $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(HARNESS_LIBS) $(GSL_LIBS) -lm

# ---- labs: skeletons, solutions, and solutions with a mistake (mistakes.def) ---------------------

LAB      := $(filter %/grade,$(RIM))
LAB_DEF  := $(LAB:%=%/labs/mistakes.def)
MISTAKES := $(if $(LAB),$(shell sed -n 's/^\(LA-[0-9a-z]*\) .*/\1/p' $(LAB_DEF)))
SOLUTION := $(wildcard $(LAB:%=%/labs/*/solution.c))
LABS     := $(patsubst $(LAB)/labs/%/solution.c,$(B)/labs/%/solution.so,$(SOLUTION)) \
            $(if $(LAB),$(patsubst docs/labs/%/lab.c,$(B)/labs/%/skeleton.so,$(wildcard docs/labs/*/lab.c))) \
            $(patsubst %,$(B)/labs/%.so,$(MISTAKES))
LAB_WARN  = -Wall -Wextra
LAB_LINK  = @mkdir -p $(@D) && $(CC) -std=c11 -D_GNU_SOURCE -O1 $(LAB_WARN) -fPIC -I. -shared -o $@ $< -lm

$(filter-out %/solution.so %/skeleton.so,$(LABS)): LAB_WARN = -w
$(B)/labs/%/skeleton.so: docs/labs/%/lab.c ref/attn_plugin.h $(wildcard docs/labs/*.h docs/labs/*/*.h) | $(READY)
	$(LAB_LINK)
$(B)/labs/%/solution.so: experiments/rim/grade/labs/%/solution.c ref/attn_plugin.h $(wildcard docs/labs/*.h docs/labs/*/*.h) | $(READY)
	$(LAB_LINK)
$(B)/labs/planted: tests/mutants/plant.awk $(LAB_DEF) $(SOLUTION)
	@mkdir -p $(@D)
	@awk -v out=$(@D) -f tests/mutants/plant.awk $(LAB_DEF)
	@touch $@
$(MISTAKES:%=$(B)/labs/%.src/unit.c): $(B)/labs/planted
	@:
$(MISTAKES:%=$(B)/labs/%.so): %.so: %.src/unit.c ref/attn_plugin.h docs/labs/lab.h | $(READY)
	$(LAB_LINK)

# ---- the examples of docs/adding.md: the library with one more file and one more line ------------
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

# A figure of its own: the program with one more script, and the row that stands in docs/adding.md.

$(B)/figure/attnlab: docs/examples/rate.gp docs/adding.md Makefile $(wildcard plots/*) $(PROGRAM_OBJ) $(B)/libharness.a $(B)/libattn.a
	@rm -rf $(@D) && mkdir -p $(@D) && cp -r plots $(@D)/ && cp docs/examples/rate.gp $(@D)/plots/
	@{ sed -n '/^    FIGURE(/,/^$$/p' docs/adding.md; cat plots/figures.def; } > $(@D)/plots/figures.def
	$(call say,cc,docs/examples/rate.gp)
	$(Q)$(CC) -I$(@D) $(subst -MMD -MP,,$(FLAGS)) -c -o $(@D)/group_words.o experiments/measure/group_words.c
	$(Q)$(CC) -I$(@D) $(subst -MMD -MP,,$(FLAGS)) -c -o $(@D)/figures.o experiments/report/figures.c
	$(Q)$(LINK) -o $@ $(@D)/group_words.o $(@D)/figures.o \
	    $(filter-out %/group_words.o %/report/figures.o,$(filter %.o,$^)) $(filter %.a,$^) $(HARNESS_LIBS) $(GSL_LIBS) -lm

# A mask more: its file, its line in kinds.def, and two calls of it for the tests of masks.
MASK_MORE := $(addprefix $(B)/,docs/examples/staircase.o mask/ref/mask/mask_parse.o mask/ref/mask/mask.o)
$(B)/mask/ref/mask/kinds.def: ref/mask/kinds.def
	@mkdir -p $(@D)
	@{ cat $<; echo 'ATTN_MASK(staircase)'; } > $@
$(B)/mask/tests/fixtures/mask_texts.def: tests/fixtures/mask_texts.def
	@mkdir -p $(@D)
	@{ cat $<; echo 'MASK_TEXT("staircase(1,br)")'; echo 'MASK_TEXT("staircase(3,-2)")'; } > $@
$(B)/mask/%.o: %.c $(B)/mask/ref/mask/kinds.def $(B)/mask/tests/fixtures/mask_texts.def $(LIB_HEADERS) | $(READY)
	$(call say,cc,$<)
	$(Q)$(CC) -I$(B)/mask $(subst -MMD -MP,,$(FLAGS)) -c -o $@ $<
$(B)/attn-tests-mask: $(MASK_MORE) $(B)/mask/tests/fixtures/mask_data.o \
                  $(filter-out $(B)/tests/fixtures/mask_data.o,$(TEST_OBJ)) $(PROGRAM_LIB) \
                  $(B)/tests/mutants/mutants.o $(B)/tests/fuzz/targets.o $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(WRAP) $(CHECK_LIBS) $(HARNESS_LIBS) $(GSL_LIBS) -lm -ldl
$(B)/attnlab-mask: $(MASK_MORE) $(PROGRAM_OBJ) $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(HARNESS_LIBS) $(GSL_LIBS) -lm

$(B)/mutant-table: $(B)/tests/mutants/table.o $(B)/tests/mutants/mutants.o $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -o $@ $^ $(HARNESS_LIBS) -lm -ldl

# ---- targets -----------------------------------------------------------------------------------

# The files that tests run, beside the test program itself.
TESTED := $(B)/attn-tests $(B)/attnlab $(B)/libattn.so $(B)/faults/dense $(PLUGINS) $(LABS) $(B)/attnlab-mistaken $(B)/fifth.so $(B)/figure/attnlab $(B)/attn-tests-mask $(B)/attnlab-mask $(MUTANT_SO)

# Where MPI is installed.  Sanitizers look into it too, and it has leaks of its own.
HAS_MPI := $(if $(and $(MPI_SRC),$(filter release debug,$(CONFIG))),$(shell command -v mpicc && command -v mpirun))
test: $(TESTED) $(if $(HAS_MPI),$(B)/attnlab-mpi $(B)/mpi-tests) | build/.ready-report ## everything that proves the suite right (five to eight minutes on 2 cores)
	ATTN_BUILD=$(B) $(B)/attn-tests
	$(if $(HAS_MPI),@bash experiments/rim/mpi/tests/run.sh $(B),@echo "no mpicc: make mpi installs it, and make test-mpi tests ranks that are processes")

# The core without the rim, and its tests but for those that take long and those of the manual, which
# shows the rim too.
CORE_SUITES := agree arithmetic bsr bugs cases csr device diagnose extremes figures files fill fuzz \
    golden grade hostile_files input_guard isa isolated ledger mask mask_language mask_power masks measure \
    memory merge messages oracle parallel pieces plan problem program record refused registry relations report \
    rounds rules saved setup sinks stack stats tensor transport verdicts
core-test: ## the core without experiments/rim, and its short tests (under two minutes of a core once it is built) *
	@$(MAKE) --no-print-directory CONFIG=core $(addprefix build/core/,attn-tests attnlab attnlab-mistaken faults/dense figure/attnlab \
	    plugins/bad.so plugins/full.so plugins/slips.so)
	@for suite in $(CORE_SUITES); do \
	    CK_RUN_SUITE=$$suite ATTN_BUILD=build/core build/core/attn-tests || exit 1; done

rooms: $(B)/attnlab $(B)/attn-tests ## delete each room of experiments/rim in a copy, and build (a minute) *
	@rm -rf $(B)-rooms && mkdir -p $(B)-rooms && bash tests/rooms.sh $(B) $(B)-rooms

TESTED_MPI := $(addprefix $(B)/,attnlab attnlab-mpi mpi-tests)
test-mpi: $(TESTED_MPI) ## ranks that are processes against simulated ones (20 s)
	@bash experiments/rim/mpi/tests/run.sh $(B)

test-full: $(TESTED) ## the same, with the full battery on every variant and long soaks *
	-@bash .ci/install external # what is not there is skipped, and said
	ATTN_FULL=1 ATTN_BUILD=$(B) $(B)/attn-tests

mutants: $(B)/mutant-table $(MUTANT_SO) ## plant every known bug and print which case kills it *
	@$(B)/mutant-table kills $(B)/mutants

names: $(B)/mutant-table $(MUTANT_SO) ## print what the diagnosis says of every mutant, and how often it is right *
	@$(B)/mutant-table names $(B)/mutants

check: $(B)/attnlab ## judge one implementation: make check SPEC=ring:ranks=4 [CASE='b1h2q9d8:causal(br):f32:normal:s1']
	$(B)/attnlab check $(if $(SPEC),'$(SPEC)') $(if $(CASE),--case '$(CASE)')

REPORT ?= build/report
report: $(B)/attnlab | build/.ready-report ## measure, draw and write REPORT/index.html (under 5 minutes on 2 cores) *
	$(B)/attnlab report --plan experiments/plans/report.plan --out '$(REPORT)'

ANIMATED ?= ring:ranks=4 ulysses:ranks=4
animation: $(B)/attnlab ## the messages of ANIMATED as build/animation/NAME.gif (docs/parallel.md) *
	@mkdir -p build/animation
	@for s in $(ANIMATED); do \
	    f=build/animation/$${s%%:*}; \
	    $(B)/attnlab price $$s --length 4096 --heads 8 --mask 'causal(br)' --pass both --log $$f.jsonl > $$f.txt && \
	    gnuplot -e "log = '$$f.jsonl'; title = '$$s, causal mask'; name = '$$f'" plots/messages.gp && echo $$f.gif || exit 3; \
	done

speed steps: $(B)/attnlab ## times beside the peak of this machine (docs/speed.md, docs/kernel.md; ten minutes, and nothing else may run)
	$(B)/attnlab measure --plan experiments/plans/$@.plan

# A bug that is planted is on mutants.md, and `attnlab list bugs` has the reference.
NOT_PLANTED = awk -v planted='$(MUTANTS)' 'BEGIN { n = split(planted, m, " "); \
        for (i = 1; i <= n; i++) { sub(/[a-z]$$/, "", m[i]); is[m[i]] = 1 } } !is[$$2]'

# On the page a mutant is its id and what it does; options and the case that kills it are printed.
WITHOUT_CASE = s/^(- [A-Z]+-[0-9]+[a-z]?)( \([^)]*\))?, [a-z0-9-]+: /\1: /

docs: $(B)/attnlab $(B)/mutant-table $(MUTANT_SO) ## make the generated tables again: docs/bugs.md, docs/mutants.md
	@{ printf '%s\n' '<!-- made by `make docs`, from `attnlab list bugs` -->' '# Bugs' \
	    'Bugs that attention implementations really had and that [mutants.md](mutants.md) has not.  A maintainer or a fix' \
	    'confirmed each, but for R, which was only reported, and X, which is a convention and no bug.  Cases of the battery' \
	    'stand for them, unless the text ends with what else does.  `attnlab list bugs` prints all bugs, those that are' \
	    'planted too, with references and cases.' ''; \
	    $(B)/attnlab list bugs --format=md; } | $(NOT_PLANTED) > docs/bugs.md
	@{ printf '<!-- made by `make docs`, from `make mutants` -->\n\n'; $(B)/mutant-table kills $(B)/mutants | \
	    sed -E '$(WITHOUT_CASE)'; } > docs/mutants.md

figures: $(B)/figures/drawn ## draw the figures of docs/figures/ and docs/studies/ again
	@for f in $(B)/figures/*.csv; do f=$${f##*/}; f=$${f%.csv}; \
	    d=docs/figures; [ -e docs/studies/$$f.md ] && d=docs/studies; cp $(B)/figures/$$f.csv $$d/; \
	    sed -E -z -f plots/small.sed $(B)/figures/$$f.svg > $$d/$$f.svg || exit 3; done

# As SVG and PDF: what the studies compute and the chapters show.
$(B)/figures/drawn: $(B)/attnlab docs/figures/draw.sh $(wildcard plots/*.gp) | build/.ready-report
	@rm -rf $(@D)
	@$(B)/attnlab study all --out $(@D) > $(B)/studies.txt
	@bash docs/figures/draw.sh $(B) $(@D)
	@touch $@

# A report to look at: of the quick plan, as Markdown (no cmark-gfm is found), without its numbers.
sample: $(B)/attnlab | build/.ready-report ## measure experiments/plans/quick.plan, and write docs/sample/ of it (a minute, and nothing else may run) *
	@rm -rf build/sample && mkdir -p build/sample/no && ln -s /bin/false build/sample/no/cmark-gfm
	@$(B)/attnlab measure --plan experiments/plans/quick.plan --quiet --out build/sample/records.jsonl
	@PATH="$$PWD/build/sample/no:$$PATH" $(B)/attnlab report --from build/sample/records.jsonl --out build/sample --quiet
	@sed -E -e '/^<details><summary>The numbers,/,/^<\/details>/d; s/ *The numbers are in the table below the figure\.//; s/ Measured 20[^ ]*Z\.//; /^## Calibration/,/^## Mach/s/^\| [^|]*//' \
	    -e '/^## Machine/,$$ {/^. (session|date|version|build|kernel|load|steal._s|affinity) . /d}' \
	    build/sample/index.md | cat -s > docs/sample/index.md
	@rm -f docs/sample/figures/*.svg; for f in build/sample/figures/*.svg; do \
	    sed -E -z -f plots/small.sed $$f > docs/sample/figures/$${f##*/} || exit 3; done

# The course: pages, figures and handouts, with the records of this machine.
COURSE ?= build/course
$(B)/course/index.html: $(B)/attnlab experiments/plans/course.plan | build/.ready-report
	@rm -rf $(@D)
	@$(B)/attnlab report --plan experiments/plans/course.plan --out $(@D)
course: $(B)/course/index.html $(B)/figures/drawn ## write COURSE/index.html: lectures, labs, handouts (about a minute; ANSWERS=no: without answers)
	@ANSWERS='$(ANSWERS)' bash docs/course/build.sh $(B)/course $(B)/figures '$(COURSE)'

# A lecture is its page, cut into slides.
slides: | build/.ready-slides ## write build/slides/NN-NAME.html, slides of each lecture (installs pandoc) *
	@mkdir -p build/slides
	@for f in docs/course/[0-9]*.md; do f=$${f##*/}; awk -f docs/course/slides.awk docs/course/$$f | \
	    pandoc -f markdown-smart-implicit_figures -t dzslides -s --self-contained --slide-level=2 --resource-path=docs/course \
	    -H docs/course/slides.html -o build/slides/$${f%.md}.html || exit 3; done; ls -d build/slides/*.html

student: ## write build/student, a repository for students: skeletons and pages of the labs, no answers
	@bash docs/labs/student.sh build/student

golden: $(B)/libharness.a $(B)/libattn.a ## make tests/golden/ again by arbitrary-precision arithmetic (libmpfr-dev) *
	$(Q)$(filter-out -MMD -MP,$(LINK)) -o $(B)/make-golden $(wildcard tests/golden/*.c) $^ $(HARNESS_LIBS) -lmpfr -lgmp -lm
	@$(B)/make-golden tests/golden

minimax: ## compute the coefficients of optimized/simd/real_tmpl.h again (gcc's libquadmath) *
	@mkdir -p $(B)
	$(Q)gcc $(filter-out -MMD -MP,$(BASE)) -O2 -o $(B)/minimax tests/minimax/minimax.c -lquadmath -lm
	@$(B)/minimax

mpi: $(B)/attnlab-mpi ## attnlab-mpi: ranks that are processes (Open MPI is installed, or the line to do it printed) *

# Freed memory that is kept to catch its use looks lost to who counts resident bytes: not much of it.
# A mutant is a unit beside the library that has it too: no complaint about names that are there twice.
# The frames that a check for use after return makes are aligned to 32 bytes, and vectors of AVX-512
# need 64 (GCC's PR 110027).
asan: ## the tests under the address and undefined-behaviour sanitizers *
	@ASAN_OPTIONS=quarantine_size_mb=4:detect_odr_violation=0:detect_stack_use_after_return=0:$$ASAN_OPTIONS \
	    $(MAKE) --no-print-directory CONFIG=asan test

tsan: ## the tests of simulated ranks under the thread sanitizer *
	@$(MAKE) --no-print-directory CONFIG=tsan all build/tsan/attn-tests
	@for suite in transport messages parallel; do \
	    CK_RUN_SUITE=$$suite ATTN_BUILD=build/tsan TSAN_OPTIONS=exitcode=66 build/tsan/attn-tests || exit 1; \
	done

KERNELS := tiled tiled@avx2 csr csr@avx2 csr:passes=3 gemm gemm:save=probs chunked ring
# Valgrind has no AVX-512, and its long double is a double: verdicts in f64 mean nothing there.
# Cases are run in processes of their own, and each has a log of its own.
valgrind: $(B)/attnlab build/.ready-valgrind ## the battery on the kernels under valgrind: reads and writes, not verdicts *
	@rm -rf $(B)/valgrind && mkdir -p $(B)/valgrind
	for spec in $(KERNELS); do \
	    ATTN_ISA=avx2 valgrind -q --log-file=$(B)/valgrind/%p $(B)/attnlab check $$spec; \
	    [ $$? -le 1 ] || exit 1; done
	grep -h '^==' $(B)/valgrind/*; [ $$? -eq 1 ]

# Every parser on what libFuzzer invents, under the sanitizers; findings stay in build/fuzz/findings.
# The kernels parse nothing: built as they are, which takes seconds instead of minutes.
FUZZ_SECONDS ?= 60
build/fuzz/optimized/simd/%.o: FLAGS += -fno-sanitize=all
FUZZ_TARGETS ?= $(notdir $(wildcard tests/fuzz/corpus/*))
$(B)/attn-fuzz: $(B)/tests/fuzz/fuzzer.o $(B)/tests/fuzz/targets.o $(PROGRAM_LIB) $(B)/libharness.a $(B)/libattn.a
	$(call say,ld,$@)
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $^ $(HARNESS_LIBS) $(GSL_LIBS) -lm
fuzz: ## fuzz every parser, FUZZ_SECONDS=60 each (FUZZ_TARGETS="mask npz"): libFuzzer, address and undefined sanitizers *
	@$(MAKE) --no-print-directory CONFIG=fuzz build/fuzz/attn-fuzz
	@$(MAKE) --no-print-directory -k CONFIG=fuzz $(addprefix fuzz-,$(FUZZ_TARGETS))
fuzz-%:
	@bash tests/fuzz/run.sh $(B) $* $(FUZZ_SECONDS)

clang: ## the tests, built by clang *
	@$(MAKE) --no-print-directory CONFIG=clang test

ARM64_CC  ?= aarch64-linux-gnu-gcc
ARM64_RUN ?= $(if $(filter aarch64,$(shell uname -m)),,qemu-aarch64 -L /usr/aarch64-linux-gnu)
test-arm64: ## the tests of the kernels on arm64: cross-compiled, run by qemu-user *
	@$(MAKE) --no-print-directory CONFIG=arm64 CC=$(ARM64_CC) build/arm64/arm64-tests
	$(ARM64_RUN) build/arm64/arm64-tests

lint: | build/.ready ## include direction, headers alone, formatting, warnings as errors (gcc and clang) *
	@bash .ci/lint

# ---- installation ------------------------------------------------------------------------------

PREFIX  ?= /usr/local
DESTDIR ?=
ROOT     = $(DESTDIR:%/=%)
LIBDIR  ?= $(PREFIX)/lib
OBJCOPY ?= objcopy
SO      := 0
# Where neither the loader nor pkg-config looks by itself.
OFF_PATH = $(filter-out /usr /usr/local,$(PREFIX))
# The headers that a caller or an implementer includes, as written from the root of the tree.
PUBLIC  := ref/attn.h ref/impl.h ref/ledger.h ref/attn_plugin.h ref/mask/mask.h \
           optimized/registry.h optimized/simple.h
COMMANDS_OF_MAN = $(shell $(B)/attnlab --help | sed -n 's/^  \([a-z]*\) .*/\1/p')

# The library that others link shows only the names of PUBLIC: all others stay inside this one object.
$(B)/public/attn.o: $(LIB_OBJ) $(PUBLIC) Makefile
	@mkdir -p $(@D)
	@sed -n '/^static/!s/^[a-z][a-z0-9_ ]*[ *]\(attn_[a-z0-9_]*\)(.*/\1/p' $(PUBLIC) > $(@D)/names
	$(Q)$(CC) $(FLAGS) -r -nostdlib $(if $(findstring -flto,$(FLAGS)),-flinker-output=nolto-rel) -o $@ $(LIB_OBJ)
	$(Q)$(OBJCOPY) --keep-global-symbols=$(@D)/names $@
$(B)/public/libattn.a: $(B)/public/attn.o
	@rm -f $@
	$(Q)$(AR) rcs $@ $<
$(B)/libattn.so: $(B)/public/attn.o
	$(call say,ld,$@)
	$(Q)$(LINK) -shared -Wl,-soname,libattn.so.$(SO) -o $@ $< -lm

# The module for Python, where there is one; and a wheel, whose program finds its libraries beside it: by
# an RPATH, which holds for what these need, too.
PYTHON  ?= $(firstword $(wildcard /usr/bin/python3) $(shell command -v python3))
MODULE  := $(if $(PYTHON),$(filter %/python,$(RIM)))
PYDIR    = $(if $(MODULE),$(shell $(PYTHON) $(MODULE)/wheel.py where '$(PREFIX)'))
WHEEL   ?= build
$(B)/wheel/attnlab: $(PROGRAM_OBJ) $(B)/libharness.a $(B)/libattn.a
	@mkdir -p $(@D)
	$(call say,ld,$@)
	$(Q)$(LINK) -s -o $@ $^ -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/lib' $(HARNESS_LIBS) $(GSL_LIBS) -lm
wheel: $(B)/wheel/attnlab ## write WHEEL=build/attnlab-VERSION-py3-none-PLATFORM.whl: attnlab.py, the program, its libraries
	@$(PYTHON) $(MODULE)/wheel.py wheel $< '$(RELEASE)' '$(WHEEL)'

install: $(B)/attnlab $(B)/public/libattn.a $(B)/libattn.so ## program, libraries, headers, manual, completion, module for Python: PREFIX=/usr/local DESTDIR=
	@d='$(ROOT)$(PREFIX)'; l='$(ROOT)$(LIBDIR)'; s=$$d/share r='$(ROOT)'; set -e; \
	folder() { [ -d "$$1" ] || { [ "$$1" = "$$r" ] || folder "$$(dirname "$$1")"; mkdir -p "$$1"; \
	    printf '%s\n' "$${1#"$$r"}"; }; }; \
	made=$$(for f in "$$d/bin" "$$l/pkgconfig" "$$d/include" "$$s/man/man1" "$$s/attnlab/plots" \
	    "$$s/attnlab/plans" "$$s/bash-completion/completions" $(if $(MODULE),'$(ROOT)$(PYDIR)'); do folder "$$f"; done); \
	[ -z "$$made" ] || printf '%s\n' "$$made" >> "$$s/attnlab/folders"; \
	install $(B)/attnlab "$$d/bin/"; \
	install -m 644 $(B)/public/libattn.a "$$l/"; \
	install $(B)/libattn.so "$$l/libattn.so.$(SO)"; \
	ln -sf libattn.so.$(SO) "$$l/libattn.so"; \
	for h in $(PUBLIC); do install -D -m 644 $$h "$$d/include/attnlab/$$h"; done; \
	install -m 644 plots/*.gp plots/page.* plots/report.md "$$d/share/attnlab/plots/"; \
	install -m 644 experiments/plans/*.plan "$$d/share/attnlab/plans/"; \
	for c in $(COMMANDS_OF_MAN); do \
	    $(B)/attnlab help $$c --format=man > "$$d/share/man/man1/attnlab-$$c.1"; done; \
	$(B)/attnlab help --format=man > "$$d/share/man/man1/attnlab.1"; \
	$(B)/attnlab help --format=bash > "$$d/share/bash-completion/completions/attnlab"; \
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include/attnlab' '' \
	    'Name: attnlab' 'Description: attention, its memory and its checks' \
	    'Version: $(RELEASE)' 'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lattn$(if $(OFF_PATH), -Wl$(comma)-rpath$(comma)$(LIBDIR))' \
	    'Libs.private: -fopenmp -pthread -lm' > "$$l/pkgconfig/attnlab.pc"
	@$(if $(MODULE),$(PYTHON) $(MODULE)/wheel.py module '$(RELEASE)' '$(ROOT)$(PYDIR)',:)
	@$(if $(DESTDIR),:,$(if $(OFF_PATH),printf '%s\n' '# $(PREFIX) is on no search path: say in your shell' \
	    'export PATH=$(PREFIX)/bin:$$PATH PKG_CONFIG_PATH=$(LIBDIR)/pkgconfig:$$PKG_CONFIG_PATH' \
	    'export MANPATH=$(PREFIX)/share/man:$$MANPATH' $(if $(MODULE),'export PYTHONPATH=$(PYDIR):$$PYTHONPATH'),:))

# Of folders those go that install made, which share/attnlab/folders lists, and that are empty.
uninstall: ## remove what install installed: the same PREFIX and DESTDIR
	@d='$(ROOT)$(PREFIX)'; l='$(ROOT)$(LIBDIR)'; made=$$(cat "$$d/share/attnlab/folders" 2>/dev/null); \
	rm -f "$$d/bin/attnlab" "$$l"/libattn.a "$$l"/libattn.so* "$$l/pkgconfig/attnlab.pc" \
	    "$$d"/share/man/man1/attnlab*.1 "$$d/share/bash-completion/completions/attnlab"; \
	rm -rf "$$d/include/attnlab" "$$d/share/attnlab" $(if $(MODULE),'$(ROOT)$(PYDIR)'/attnlab.py '$(ROOT)$(PYDIR)'/attnlab-*.dist-info); \
	printf '%s\n' "$$made" | tac | while IFS= read -r f; do rmdir '$(ROOT)'"$$f" 2>/dev/null; done; :

clean: ## remove build/ *
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z][a-z0-9-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r t d; do printf '  make %-10s %s\n' "$$t" "$$d"; done
	@echo '  * no test of make test does what it does'

FORCE:
.PHONY: all wheel mpi test-mpi core-test rooms install uninstall fuzz animation speed steps valgrind tsan test test-full golden minimax mutants names docs figures sample course slides student check report asan clang test-arm64 lint clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $(B) -name '*.d' 2>/dev/null)
