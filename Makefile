# The front door. Every target sets up what it needs on a bare Debian 12 machine.
#
#   make demo                 diagnose the bundled job
#   make test                 build everything and run all tests
#   make run ARGS='...'       build and run the paceline command
#   make acceptance ROOM=x    the figures a room must show, each against its bound
#   make soak ROOM=x          the figures that take long; stored, and shown by acceptance
#   make bench                all benchmarks
#   make format               lay out all C++ code
#   make tidy ROOM=x          static checks of a room

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
PACELINE := build/release/cli/paceline

.PHONY: help demo test run acceptance soak bench format tidy core-deps test-deps dev-deps command

help:
	@sed -n 's/^#   //p' Makefile

core-deps:
	@tools/install-deps core
test-deps:
	@tools/install-deps test
dev-deps:
	@tools/install-deps dev

# One line per step unless something goes wrong: the log of configuring is shown only then.
define configure
	@mkdir -p build
	@cmake --preset $(1) $(2) > build/configure-$(1).log 2>&1 || { cat build/configure-$(1).log >&2; exit 1; }
endef

command: core-deps
	$(call configure,release)
	@cmake --build --preset release -j $(JOBS) --target paceline -- --quiet

demo: command
	$(PACELINE) diagnose examples/slow_rank

run: command
	@$(PACELINE) $(ARGS)

test: test-deps
	$(call configure,release,-DPACELINE_TESTS=ON -DPACELINE_WERROR=ON)
	cmake --build --preset release -j $(JOBS)
	@rm -f build/release/tests.xml
	ctest --preset release --output-on-failure --no-tests=error -j 2 --output-junit tests.xml < /dev/null
	@tools/test_summary build/release/tests.xml

define need_room
	@[ -n "$(ROOM)" ] || { echo "paceline: make $@: ROOM is empty, expected a room; e.g. make $@ ROOM=trace" >&2; exit 2; }
endef

acceptance soak: command
	$(need_room)
	@tools/install-deps test
	$(call configure,release)
	@cmake --build --preset release -j $(JOBS) --target acceptance_programs -- --quiet
	@python3 -B tests/acceptance/$(ROOM)$(if $(filter soak,$@),_soak).py

bench: test-deps
	$(call configure,release,-DPACELINE_BENCHMARKS=ON)
	@cmake --build --preset release -j $(JOBS) -- --quiet
	@for bench in build/release/*_bench; do echo "== $$bench"; "$$bench"; done

format: dev-deps
	@git ls-files -z '*.h' '*.cc' | xargs -0 -r clang-format-19 -i

tidy: dev-deps test-deps
	$(need_room)
	$(call configure,release,-DPACELINE_TESTS=ON)
	@find paceline/$(ROOM) -name '*.cc' ! -name '*_bench.cc' ! -name '*_test.cc' -print0 | \
	  xargs -0 -r -n 1 -P $(JOBS) clang-tidy-19 -p build/release --quiet 2> build/tidy.log || { cat build/tidy.log >&2; exit 1; }
