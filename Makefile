# The targets for people and CI. `make help` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/sh
# rustup installs cargo there; shells that were started before the installation do not have it in PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Arguments for `demo`, `test` and the benches, as in `make bench ARGS=--quick`.
ARGS ?=
# For `demo`: end after this time, as in FOR=20s. For `fuzz`: seconds per target; the default is 60.
FOR ?=
# For `demo`: `containerd` for a private containerd, or the URL of a running runtime. Empty: the embedded runtime.
RUNTIME ?=

TARGET = $(or $(CARGO_TARGET_DIR),target)
# The build that the tests use: unoptimised, with fault injection.
CRIPROBE = $(TARGET)/debug/criprobe
DEMO_ARGS = $(if $(FOR),--for $(FOR)) $(ARGS)
SCRIPTS = $(wildcard tests/lab/*.sh packaging/*.sh packaging/rpm/*.sh packaging/kubernetes/*.sh) packaging/deb/postinst packaging/deb/postrm packaging/deb/prerm

FUZZ_TARGETS = $(sort $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs))))
FUZZ_SECONDS = $(patsubst %s,%,$(or $(FOR),60))

.PHONY: help build man deb rpm image notices demo test test-exec-equality check bench bench-prober bench-hostile bench-restart bench-exec fuzz proto toolchain

help:
	@echo "make build                    the release binary, target/release/criprobe"
	@echo "make man                      man pages of criprobe and of each verb, target/man/*.8"
	@echo "make deb, make rpm            a package with the release binary, in target/package; TRIPLE=... for another target of Rust"
	@echo "make image                    an OCI archive with nothing but a static binary, in target/package; needs no daemon"
	@echo "make notices                  packaging/THIRD-PARTY-NOTICES, after a change of the crates in the binary"
	@echo "make demo [FOR=20s]           criprobe on its embedded runtime; needs neither root nor containerd"
	@echo "make demo RUNTIME=containerd  the same on a private containerd with real containers (root; Debian or Ubuntu)"
	@echo "make test                     all tests; as root on Debian or Ubuntu, also with a private containerd, systemd and a browser"
	@echo "make test-exec-equality [COMMANDS=10000]  random commands by sessions and by ExecSync; SEED=... repeats a run"
	@echo "make check                    format, lints, docs, scripts, and whether the fuzz targets compile"
	@echo "make bench [ARGS=--quick]     criprobe beside socat, nginx and HAProxy; ARGS=--trace: what a file of calls costs"
	@echo "make bench-prober             5,000 probes on one node: attempts, lag, CPU, memory; ARGS as for bench"
	@echo "make bench-hostile            what one hostile pod costs 200 normal pods; ARGS=--long takes 20 minutes"
	@echo "make bench-restart            what clients notice of restarts, beside HAProxy and nginx (root; Debian or Ubuntu)"
	@echo "make bench-exec               what exec probes cost on a real containerd, by ExecSync and by sessions (root; Debian or Ubuntu)"
	@echo "make proto                    write proto/descriptors.bin, after a change of a .proto file"
	@echo "make fuzz [FOR=60s]           every fuzz target for this time; needs rustup and python3, installs cargo-fuzz"

build: toolchain
	cargo build --release --locked

man: toolchain
	cargo run --quiet --locked --example man -- $(TARGET)/man

deb rpm image notices: toolchain
	@packaging/build.sh $@

demo: toolchain
	cargo build --locked --features faults
ifeq ($(RUNTIME),containerd)
	@tests/lab/demo.sh $(CRIPROBE) $(DEMO_ARGS)
else
	@$(CRIPROBE) demo $(if $(RUNTIME),--runtime $(RUNTIME)) $(DEMO_ARGS)
endif

test: toolchain
	@tests/lab/run-tests.sh --locked $(ARGS)

# COMMANDS: how many are compared, all three shells together. SEED: those of an earlier run again.
test-exec-equality: toolchain
	EQUALITY_COMMANDS=$(or $(COMMANDS),10000) EQUALITY_SEED=$(SEED) cargo test --locked --test containerd -- \
		--nocapture sessions::equality

# The second clippy checks what users install, without `faults`. It has tokio's feature because the tests do, so that no
# dependency is checked again. criprobe-proto and criprobe-fleet are checked alone for the same reason.
check: toolchain
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy -p criprobe -p criprobe-wire -p criprobe-bench --all-targets --locked -- -D warnings
	cargo clippy --features tokio/test-util --locked -- -D warnings
	cargo clippy -p criprobe-proto --all-targets --locked -- -D warnings
	cargo clippy -p criprobe-fleet --all-targets --locked -- -D warnings
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir $(TARGET) --no-default-features --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -p criprobe -p criprobe-wire --no-deps --locked --document-private-items --features faults
	set -e; for script in $(SCRIPTS); do sh -n $$script; done
	@if command -v shellcheck >/dev/null; then shellcheck -s sh -x -P SCRIPTDIR $(SCRIPTS); \
		else echo "shellcheck is not installed: scripts were only parsed"; fi
	bash -n .ci/run

proto: toolchain
	cargo run --locked -p criprobe-proto

bench: build
	cargo bench --locked -p criprobe-bench --bench relay -- $(ARGS)

bench-prober: build
	cargo bench --locked -p criprobe-bench --bench prober -- $(ARGS)

bench-hostile: build
	cargo bench --locked -p criprobe-bench --bench hostile -- $(ARGS)

bench-restart: build
	cargo bench --locked -p criprobe-bench --bench restart -- $(ARGS)

bench-exec: build
	cargo bench --locked -p criprobe-bench --bench exec -- $(ARGS)

# cargo-fuzz needs the sanitizers of a nightly compiler.
fuzz: toolchain
	@cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
	@cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked
	@python3 fuzz/seeds.py
	@set -e; for target in $(FUZZ_TARGETS); do \
		echo "$$target for $(FUZZ_SECONDS) s"; \
		cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -print_final_stats=1; \
	done

toolchain:
	@command -v cargo >/dev/null || { echo "make: cargo was not found: install Rust 1.91 or newer, https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "make: cc was not found, and Rust needs it to link: install gcc (apt-get install gcc libc6-dev)" >&2; exit 1; }
