#!/bin/sh
# Runs the ratchets over the collections in RUSHLIGHT_RATCHET_DATA, where that is set. Arguments go to the program.
set -eu
here=$(dirname "$0")
if [ -z "${RUSHLIGHT_RATCHET_DATA:-}" ] || [ -z "${RUSHLIGHT_TEST_MODELS:-}" ]; then
    echo "ratchet: skipped; set RUSHLIGHT_RATCHET_DATA and RUSHLIGHT_TEST_MODELS (see $here/README.md)"
    exit 0
fi
run() {
    "${CARGO:-cargo}" run --release --locked -p rushlight-grammar-ratchet -- "$@"
}
tokenizer=$RUSHLIGHT_TEST_MODELS/tokenizers/llama3_1/tokenizer.json
run maskbench "$RUSHLIGHT_RATCHET_DATA/maskbench/quarter.jsonl.gz" "$tokenizer" \
    --threads 2 --bare --expected "$here/expected/maskbench.tsv" "$@"
run suite "$RUSHLIGHT_RATCHET_DATA/json-schema-test-suite.jsonl.gz" "$tokenizer" \
    --threads 2 --expected "$here/expected/suite.tsv" "$@"
