#!/usr/bin/env bash
# Makes the virtual environment of the peers in bench/peers.txt.
#
# usage: setup_peers.sh [DIRECTORY]      (default: build/peers beside bench/)
#
# Running it again is cheap: nothing happens while peers.txt is unchanged.
# PYTHON chooses the interpreter (3.11 or later); by default the first of
# /usr/bin/python3 and python3 that will do.  Prints one line; exit status 0
# when the peers can be imported, 1 otherwise.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
list=$here/peers.txt
dir=${1:-$here/../build/peers}

fail() { echo "setup_peers: $*" >&2; exit 1; }

[ -r "$list" ] || fail "cannot read $list"
wanted=$(cksum <"$list")
stamp=$dir/.peers
imports() { "$dir/bin/python" -c 'import hta.trace_analysis' >/dev/null 2>&1; }

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && imports; then
    echo "setup_peers: ready in $dir (unchanged)"
    exit 0
fi

python=
for candidate in ${PYTHON:-/usr/bin/python3 python3}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "no Python 3.11 or later found (set PYTHON)"

mkdir -p "$dir" || fail "cannot create $dir"
log=$dir/setup.log
rm -f "$stamp"
"$python" -m venv --clear "$dir" >"$dir.log" 2>&1 || {
    reason=$(tail -n 1 "$dir.log"); rm -f "$dir.log"
    fail "$python cannot make a virtual environment (python3-venv missing?): $reason"
}
rm -f "$dir.log"
if ! "$dir/bin/python" -m pip install --disable-pip-version-check --no-input --no-deps \
        --only-binary :all: --retries 1 --timeout 30 -r "$list" >"$log" 2>&1; then
    if grep -qiE 'connection|retrying|timed out|resolve|unreachable|proxy|SSL' "$log"; then
        fail "the package registry cannot be reached; see $log"
    fi
    fail "pip failed: $(grep -m 1 '^ERROR' "$log" || tail -n 1 "$log")"
fi
imports || fail "the peers are installed in $dir but cannot be imported: $("$dir/bin/python" -c 'import hta.trace_analysis' 2>&1 | tail -n 1)"
echo "$wanted" >"$stamp"
echo "setup_peers: ready in $dir ($(grep -c '^[A-Za-z].*==' "$list") packages pinned)"
