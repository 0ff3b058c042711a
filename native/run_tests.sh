#!/bin/sh
# Builds and runs the native tests: plain, with AddressSanitizer + UBSan, and with ThreadSanitizer.
# usage: native/run_tests.sh [build folder, default build]
set -eu
source=$(dirname "$0")
build=${1:-build}
for kind in plain address,undefined thread; do
  folder="$build/native-$kind"
  sanitize=$kind
  if [ "$kind" = plain ]; then sanitize=""; fi
  cmake -S "$source" -B "$folder" -DBRAZE_SANITIZE="$sanitize" -DBRAZE_BUILD_TESTS=ON \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo
  cmake --build "$folder" --parallel 2
  (cd "$folder" && ctest --output-on-failure)
done
