#!/bin/sh
# check_isa_leaks.sh OBJDUMP NM --baseline OBJECT... {--isa FORBIDDEN OBJECT...}...
# Fails if a baseline object uses AVX or AMX registers (it would crash on a CPU without them), if an object of an instruction
# set uses what the extended regular expression FORBIDDEN finds in its disassembly (a set above its own), or if it
# defines a weak function (the linker might keep that copy of an inline function for baseline code too).
set -eu
objdump=$1
nm=$2
shift 2

avx='%[tyz]mm[0-9]'
mode=
forbidden=
baseline=0
isa=0
failed=0

count() { "$objdump" -d --no-show-raw-insn "$1" | grep -c -E "$2" || true; }
fail() {
  echo "FAIL: $1"
  failed=1
}

while [ $# -gt 0 ]; do
  object=$1
  shift
  case $object in
    --baseline)
      mode=baseline
      continue
      ;;
    --isa)
      mode=isa
      forbidden=$1
      shift
      continue
      ;;
  esac
  uses_avx=$(count "$object" "$avx")
  if [ "$mode" = baseline ]; then
    baseline=$((baseline + 1))
    [ "$uses_avx" -eq 0 ] || fail "$object: $uses_avx instructions with AVX or AMX registers in a baseline object"
  else
    isa=$((isa + 1))
    weak=$("$nm" -C "$object" | grep ' W ' || true)
    [ -z "$weak" ] || fail "$object: weak functions: $weak"
    [ "$uses_avx" -ne 0 ] || fail "$object: no AVX or AMX registers: the disassembly shows nothing, or the flags are missing"
    above=$(count "$object" "$forbidden")
    [ "$above" -eq 0 ] || fail "$object: $above instructions of another instruction set: $forbidden"
  fi
done

if [ "$baseline" -eq 0 ] || [ "$isa" -eq 0 ]; then
  echo "FAIL: $baseline baseline and $isa instruction set objects: nothing to compare"
  exit 1
fi
echo "$baseline baseline objects without AVX or AMX registers, $isa instruction set objects without weak functions"
exit $failed
