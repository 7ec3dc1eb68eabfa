#!/usr/bin/env bash
# Prepares MLX and its C library on Linux, out of packages: for checking the MLX device where no Mac is.
# Everything goes to target/mlx (or the folder that is named); what is there already is used again. The
# library is then libmlxc.so in that folder, for HEARTH_MLX.
#
# MLX is built for its processor device, which is slow. About 4 minutes on two processors.
set -euo pipefail
cd "$(dirname "$0")/.."

# mlx-c and MLX go together in exactly these versions.
mlx=0.32.2
mlx_c=0.7.0
out=$(realpath -m "${1:-target/mlx}")
stamp="$out/made-of-mlx-$mlx-mlx-c-$mlx_c"
if [ -e "$stamp" ]; then
    exit 0
fi
rm -rf "$out"
mkdir -p "$out/source/src"

python3 -m venv "$out/venv"
"$out/venv/bin/pip" install --quiet --disable-pip-version-check \
    "mlx==$mlx" "mlx-cpu==$mlx" cmake==4.1.3 ninja==1.13.0
export PATH="$out/venv/bin:$PATH"
site=$("$out/venv/bin/python" -c 'import mlx; print(list(mlx.__path__)[0])')

# The C library's source is in the crate package of its Rust bindings, which we do not use.
cat > "$out/source/Cargo.toml" <<EOF
[package]
name = "source"
version = "0.1.0"
edition = "2021"
[dependencies]
mlx-sys = "=$mlx_c"
[workspace]
EOF
: > "$out/source/src/lib.rs"
(cd "$out/source" && cargo vendor --quiet vendor > vendor.toml)

cmake -S "$out/source/vendor/mlx-sys/src/mlx-c" -B "$out/build" -G Ninja \
    -DMLX_C_USE_SYSTEM_MLX=ON -DMLX_C_BUILD_EXAMPLES=OFF -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$site" -DMLX_DIR="$site/share/cmake/MLX" \
    -DCMAKE_BUILD_RPATH="$site/lib" -DCMAKE_CXX_FLAGS="-include $PWD/tools/mlx/format.h" > "$out/cmake.log"
ninja -C "$out/build" > "$out/ninja.log" || { tail -40 "$out/ninja.log"; exit 1; }
ln -s build/libmlxc.so "$out/libmlxc.so"
touch "$stamp"
