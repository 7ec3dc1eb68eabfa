#!/usr/bin/env bash
# Fetches the official tests of JSON Schema into a folder, with the pip that is given. They come with the sources
# of the Python package jsonschema; the version and the digest are pinned.
set -euo pipefail
pip="$1"
folder="$2"

version=4.25.1
digest=e4a9655ce0da0c0b67a085847e00a3a51449e1157f4f75e9fb5aa545e122eb85

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
echo "jsonschema==$version --hash=sha256:$digest" > "$work/pinned.txt"
"$pip" download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes \
    --dest "$work" --requirement "$work/pinned.txt"
mkdir -p "$folder"
tar -xzf "$work/jsonschema-$version.tar.gz" -C "$folder" --strip-components=3 "jsonschema-$version/json/tests/draft2020-12"
