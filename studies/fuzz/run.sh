#!/usr/bin/env bash
# run.sh BUILD_FOLDER SECONDS [JOBS]: builds the fuzz targets and runs each for so long, two or JOBS
# at a time. What they find is kept in BUILD_FOLDER/corpus, and an input that fails in BUILD_FOLDER.
# run.sh --check: whether there is what it needs.
set -euo pipefail
has_libfuzzer() {
  clang++ -fsanitize=fuzzer,address -x c++ -o /dev/null - 2> /dev/null << 'SOURCE'
extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }
SOURCE
}
if [ "$1" = --check ]; then
  has_libfuzzer
  exit
fi
build=$1 seconds=$2 jobs=${3:-2}
if ! has_libfuzzer; then
  echo "fuzzing skipped: clang++ with its run-time libraries (libclang-rt-dev) is not installed"
  exit 0
fi
cmake -S "$(dirname "$0")/../.." -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DHVDTUNE_PYTHON=OFF -DHVDTUNE_FUZZ=ON \
  -DHVDTUNE_SANITIZE=fuzzer-no-link,address,undefined > /dev/null
cmake --build "$build" --target fuzz -j "$jobs"
cd "$build"
./seeds inputs
mkdir -p corpus/{frame,message,handshake,scan}
printf '%s\n' frame message handshake scan | xargs -P "$jobs" -I NAME sh -c "
  ./NAME_fuzz -max_total_time=$seconds -max_len=4096 -timeout=60 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix=NAME- corpus/NAME inputs/NAME 2> NAME.log || { tail -40 NAME.log; exit 255; }
  echo \"NAME: nothing found in $seconds s\""
