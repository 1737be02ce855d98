#!/bin/sh
# Compiles one file of Verilator's library, or fetches the object from an earlier build.
#
# Verilator's makefiles put this (OBJCACHE) in front of every compiler call. The library's own files,
# verilated*.cpp, are most of the compile time and the same for all designs; what was generated
# for a design is compiled directly. STAGECOACH_OBJECTS names the folder that keeps the objects.
set -eu
source= object= previous=
for argument in "$@"; do
    [ "$previous" = -o ] && object=$argument
    previous=$argument
    source=$argument
done
case $source in
"${VERILATOR_ROOT:-/nowhere}"/include/verilated*.cpp) ;;
*) exec "$@" ;;
esac
[ -n "${STAGECOACH_OBJECTS:-}" ] && [ -n "$object" ] || exec "$@"

key=$({
    printf '%s\n' "$@"
    "$1" --version
    uname -m
    cat "$VERILATOR_ROOT"/include/*.h "$source"
} | sha256sum | cut -c1-32)
# An entry of the cache, as hw/cache.py has them: a folder, whose time is that of its last use.
entry=$STAGECOACH_OBJECTS/$key
if cp "$entry/object.o" "$object" 2>/dev/null; then
    touch "$entry"
else
    "$@"
    mkdir -p "$entry"
    # Renaming is atomic: a parallel build sees the whole object or none.
    cp "$object" "$entry/object.$$"
    mv "$entry/object.$$" "$entry/object.o"
fi
