#!/bin/sh
# check_isa_leaks.sh OBJDUMP NM --baseline OBJECT... --isa OBJECT...
# Fails if a baseline object uses AVX registers (it would crash on a CPU without them), or if an object of an instruction
# set defines a weak function (the linker might keep that copy of an inline function for baseline code too).
set -eu
objdump=$1
nm=$2
shift 2

mode=
baseline=0
isa=0
failed=0
for argument in "$@"; do
  case $argument in
    --baseline | --isa)
      mode=$argument
      continue
      ;;
  esac
  uses_avx=$("$objdump" -d --no-show-raw-insn "$argument" | grep -c -E '%[yz]mm[0-9]' || true)
  if [ "$mode" = --baseline ]; then
    baseline=$((baseline + 1))
    if [ "$uses_avx" -ne 0 ]; then
      echo "FAIL: $argument: $uses_avx instructions with AVX registers in a baseline object"
      failed=1
    fi
  else
    isa=$((isa + 1))
    weak=$("$nm" -C "$argument" | grep ' W ' || true)
    if [ -n "$weak" ]; then
      echo "FAIL: $argument: weak functions: $weak"
      failed=1
    fi
    if [ "$uses_avx" -eq 0 ]; then
      echo "FAIL: $argument: no AVX registers: the disassembly shows nothing, or the flags are missing"
      failed=1
    fi
  fi
done

if [ "$baseline" -eq 0 ] || [ "$isa" -eq 0 ]; then
  echo "FAIL: $baseline baseline and $isa instruction set objects: nothing to compare"
  exit 1
fi
echo "$baseline baseline objects without AVX registers, $isa instruction set objects without weak functions"
exit $failed
