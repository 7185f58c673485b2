# ddprun: a thin front for meson and ninja. Each target installs what it needs and the machine
# lacks (scripts/setup), so that a fresh Debian machine needs nothing but make.
# Everything is written below build/ and build-*/.

PREFIX ?= /usr/local
WHEELS ?= build/wheel
PIP_OPTIONS ?=

TESTS ?=
FAILED ?=

comma := ,
chosen = $(if $(filter 1,$(FAILED)),--failed) $(foreach word,$(subst $(comma), ,$(TESTS)),'$(word)')

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build demo demo-elastic test check lint fuzz bench dist wheel deb install uninstall clean

## help     show this list
help:
	@sed -n 's/^## /make /p' Makefile

## build    compile everything into build/
build:
	@scripts/setup build
	@scripts/build build

## demo     train a small network on Fashion-MNIST with four workers, on GPUs where there are any
demo:
	@scripts/setup build demo
	@scripts/build --quiet build
	@scripts/demo

## demo-elastic  lose a node, gain one, lose a worker while training (scripts/demo-elastic)
demo-elastic:
	@scripts/setup build elastic
	@scripts/setup demo || echo "setup: made-up images instead of Fashion-MNIST"
	@scripts/build --quiet build
	@scripts/demo-elastic

## test     lint, then each test once: some four minutes; TESTS=name,group for some, FAILED=1 for those that failed last
test:
	@scripts/setup build demo test lint
	@scripts/test $(chosen)

## check    what 'make test' leaves out: sanitizers, failpoints, wheels, PyTorch; TESTS and FAILED as above
check:
	@scripts/setup build demo test
	@scripts/setup interop || echo "setup: the tests with PyTorch are skipped"
	@scripts/test --check $(chosen)

## lint     check the rules that the compiler does not (scripts/lint --help)
lint:
	@scripts/setup build lint
	@scripts/build --quiet build
	@scripts/lint

## fuzz     run each fuzz target for a minute from its corpus (scripts/fuzz)
fuzz:
	@scripts/setup build fuzz
	@scripts/fuzz

## bench    measure against other launchers, Redis and gloo; tables and pictures go to build/bench/
bench:
	@scripts/setup build bench
	@scripts/build --quiet build
	@scripts/bench

## dist     pack the source of the last commit into build/meson-dist/, with its checksum
dist:
	@scripts/setup build
	@scripts/build --quiet build
	meson dist -C build --no-tests

## wheel    build the Python wheel, with launcher, libraries and package, into build/wheel/ (docs/python.md)
wheel:
	@scripts/setup build wheel
	python3 -m pip wheel --no-deps --wheel-dir "$(WHEELS)" $(PIP_OPTIONS) ./python

## deb      build the Debian packages into build/deb/, and check them with lintian
deb:
	@scripts/setup build deb
	@scripts/deb

## install  install below PREFIX (/usr/local), staged in DESTDIR if that is set
install:
	@scripts/install "$(PREFIX)"

## uninstall  remove what the last 'make install' has installed
uninstall:
	@scripts/install --undo

## clean    remove all build directories
clean:
	rm -rf build*/
