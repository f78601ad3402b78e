#!/bin/sh
# Runs `criprobe demo` on a private, real containerd, and always removes that afterwards.
#
#   demo.sh CRIPROBE [ARGUMENT...]     the binary, and arguments for its verb demo
#
# Needs root; installs missing packages on Debian or Ubuntu. The exit code is that of the demo.
set -eu
lab=$(dirname "$0")/containerd.sh
criprobe=$1
shift

said=$($lab check) || { echo "make demo RUNTIME=containerd: $said" >&2; exit 1; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/criprobe-demo.XXXXXX")
# `up` gets this shell as the rig's owner, so the rig is removed even if the shell is killed.
clear_up() {
    trap '' INT TERM HUP
    if [ -e "$dir/rig" ]; then $lab down "$dir"; else rm -rf "$dir"; fi
}
trap clear_up EXIT
# A signal ends the demo first, which drains; the shell handles the signal after that.
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

echo "starting a private containerd" >&2
url=$($lab up "$dir" $$)
"$criprobe" demo --runtime "$url" "$@"
