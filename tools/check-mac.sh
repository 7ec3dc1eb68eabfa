#!/usr/bin/env bash
# Type-checks everything for Macs with Apple processors, on any machine. C code of dependencies is not
# compiled (a stand-in compiler makes empty files), so nothing can be linked or run.
set -euo pipefail
cd "$(dirname "$0")/.."

rustup target add aarch64-apple-darwin
stand_in=$(mktemp)
trap 'rm -f "$stand_in"' EXIT
cat > "$stand_in" <<'EOF'
#!/bin/sh
# Makes the file that was asked for: `-o FILE` of a compiler, `FILE.a` of an archiver.
while [ $# -gt 0 ]; do
    case "$1" in
        -o) shift; : > "$1" ;;
        *.a) : > "$1" ;;
    esac
    shift
done
EOF
chmod +x "$stand_in"
export CC_aarch64_apple_darwin="$stand_in" CXX_aarch64_apple_darwin="$stand_in"
export AR_aarch64_apple_darwin="$stand_in"
cargo check --workspace --target aarch64-apple-darwin "$@"
