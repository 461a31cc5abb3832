# Finds and kills a hanging role, for deploy/supervise and, in a container, for deploy/watch. Sourced, not run.
# shellcheck shell=bash disable=SC2034  # the sourcing scripts use the variables

still_looks=5      # a role hangs if its file is unchanged for this many looks
starting_looks=300 # a role without a file after this many looks never starts to listen

# Waits for the end of process $child, a role whose file is $1.heartbeat. Sets `code` to its exit code and `child` to 0.
# Looks are a second apart, and only looks count: a process that was suspended with its machine does not hang. $2, if
# given, is called at each look.
watch_child() {
  local beat last="" still=0 most finished
  while true; do
    sleep 1 >/dev/null 2>&1 9<&- &
    wait -n -p finished "$child" $!
    code=$?
    [ "${finished:-}" != "$child" ] || break
    [ -n "${finished:-}" ] || continue  # a signal
    beat=""
    { read -r beat <"$1.heartbeat"; } 2>/dev/null
    if [ -e "$1.unwatched" ] || [ "$beat" != "$last" ]; then still=0; else still=$((still + 1)); fi
    last=$beat
    if [ -n "$beat" ]; then most=$still_looks; else most=$starting_looks; fi
    if [ "$still" = "$most" ]; then
      echo "$(date -u +%FT%TZ) ${1##*/} shows no sign of life: killing it" >&2
      kill -KILL "$child"
    fi
    [ -z "${2:-}" ] || "$2"
  done
  child=0
}
