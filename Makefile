# Two commands do everything on a fresh machine: `make demo` and `make test`.

CARGO ?= cargo
# The default model's name in the store.
MODEL ?= SmolLM2-135M-Instruct.Q4_1
QUESTION ?= What is the capital of France, and what is it known for?
# Where cargo puts what it builds.
TARGET = $(or $(CARGO_TARGET_DIR),target)

.PHONY: demo test lint bench ratchet models test-models

## Build, fetch the default model into the store, and answer a question.
demo: models
	$(CARGO) build --release --locked -p rushlight-cli
	$(TARGET)/release/rushlight run --model $(MODEL) --max-tokens 96 --temperature 0 --prompt "$(QUESTION)"

## Every test of the workspace, over real checkpoints.
test: test-models
	RUSHLIGHT_TEST_MODELS="$$(scripts/test-models.sh --where)" $(CARGO) test --locked --workspace

## Formatting, lints, documentation, licences.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace -- -D warnings
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings -A clippy::unwrap_used
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and bans were not checked"; fi

## Side-by-side speed; see bench/README.md.
bench: models
	$(CARGO) build --release --locked -p rushlight-cli
	bench/run.sh $(TARGET)/release/rushlight

## Every case of the external collections, where their data is; see rushlight-grammar/ratchet.
ratchet:
	@CARGO="$(CARGO)" rushlight-grammar/ratchet/run.sh

models:
	@scripts/demo-model.sh

test-models:
	@scripts/test-models.sh
