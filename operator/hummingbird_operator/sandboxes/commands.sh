# Runs the model's commands inside a sandbox: each one once, in a session of its own, with a time limit and bounded
# output, and with a record from which a repeated request is answered. POSIX sh: dash, bash and busybox ash.
#
#   sh commands.sh run    request on stdin, answer on stdout (both described in commands.py)
#   sh commands.sh sweep  kill everything but PID 1 and this
#
# A record is a folder named by the command's id:
#   owner/   made by whoever starts the command: mkdir is the lock, so nothing is ever started twice
#   command  the command; never an argument, so that no list of processes shows it
#   pid      the supervisor's; it has a session of its own and outlives the connection that asked for it
#   out err  the streams, cut at the limit; *.cut says so
#   result   the answer, moved into place when it is complete
set -u
root=${0%/*}

nap() { sleep 0.1 2>/dev/null || sleep 1; }

# --- the request ---------------------------------------------------------------------------------------------------

run() {
    for field in id seconds head tail max out_path err_path length; do
        IFS= read -r value || exit 97
        eval "$field=\$value"
    done
    dir=$root/runs/$id
    known=1
    [ -e "$dir/owner" ] || start
    await
    printf 'known=%s ' "$known"
    cat "$dir/result"
}

start() {
    mkdir -p "$dir" || exit 98
    request=$dir/command.$$
    cat >"$request" || exit 98
    if [ "$(($(wc -c <"$request")))" -ne "$length" ]; then
        rm -f "$request"
        exit 97 # the connection was cut: half a command must not run
    fi
    if mkdir "$dir/owner" 2>/dev/null; then
        known=0
        mv "$request" "$dir/command"
        $detach sh "$0" supervise "$dir" "$id" "$seconds" "$head" "$tail" "$max" "$out_path" "$err_path" \
            </dev/null >/dev/null 2>&1 &
        wait "$!"
    else
        rm -f "$request"
    fi
}

# Wait for the result. A supervisor that is gone (killed by the command or by a sweep) is stood in for.
await() {
    missing=0
    while [ ! -e "$dir/result" ]; do
        if alive; then
            missing=0
        else
            missing=$((missing + 1))
            # 5 s for one that has not written its pid yet
            if [ "$missing" -gt 50 ] || { [ -s "$dir/pid" ] && [ "$missing" -gt 2 ]; }; then
                conclude 137 0
                break
            fi
        fi
        nap
    done
}

alive() {
    pid=
    [ -s "$dir/pid" ] && read -r pid <"$dir/pid"
    [ -n "$pid" ] && grep -qs "$id" "/proc/$pid/cmdline"
}

# --- the command ---------------------------------------------------------------------------------------------------

supervise() {
    dir=$1 id=$2 seconds=$3 head=$4 tail=$5 max=$6 out_path=$7 err_path=$8
    echo "$$" >"$dir/pid"
    mkfifo "$dir/out.pipe" "$dir/err.pipe"
    keep out &
    readers=$!
    keep err &
    readers="$readers $!"
    HUMMINGBIRD_COMMAND=$id $detach sh "$dir/command" </dev/null >"$dir/out.pipe" 2>"$dir/err.pipe" &
    command=$!
    watchdog &
    watchdog=$!
    wait "$command"
    code=$?
    timed_out=0
    if [ -e "$dir/timed_out" ]; then
        timed_out=1 code=124
        wait "$watchdog" # it still looks for children that got away
    else
        kill "$watchdog" 2>/dev/null
    fi
    # What the command left in the background may hold its output open for ever: a second, then the rest is not waited
    # for. The readers stay, so that a server started on purpose does not die of a broken pipe.
    trap : USR1
    { sleep 1; kill -USR1 "$$"; } 2>/dev/null &
    timer=$!
    # shellcheck disable=SC2086
    wait $readers
    kill "$timer" 2>/dev/null
    conclude "$code" "$timed_out"
}

# cat, because head holds back what it has read until its input ends. The limit on a file's size counts blocks of 512
# bytes, so at least one byte more than `max` shows that there was more; the rest is read and dropped, or the command
# would block.
keep() {
    exec <"$dir/$1.pipe"
    (
        trap '' XFSZ
        ulimit -f "$((max / 512 + 1))"
        exec cat >"$dir/$1"
    ) 2>/dev/null || : >"$dir/$1.cut"
    exec cat >/dev/null
}

watchdog() {
    # The command may end before this shell knows its clock: then the trap only remembers that. And not with TERM, which
    # a clock that has only just been forked still takes for its parent's.
    clock=
    over=
    trap 'over=1; kill -KILL $clock 2>/dev/null' TERM
    sleep "$seconds" &
    clock=$!
    [ -z "$over" ] || kill -KILL "$clock" 2>/dev/null
    wait "$clock"
    [ -z "$over" ] || exit 0
    trap - TERM
    : >"$dir/timed_out"
    kill -KILL "-$command" 2>/dev/null
    kill -KILL "$command" 2>/dev/null
    # A child with a session of its own is not in that group; it still carries the mark in its environment.
    rounds=0
    while [ "$rounds" -lt 20 ]; do
        rounds=$((rounds + 1))
        marked=$(grep -ls "HUMMINGBIRD_COMMAND=$id" /proc/[0-9]*/environ)
        [ -n "$marked" ] || break
        for process in $marked; do
            process=${process#/proc/}
            kill -KILL "${process%/environ}" 2>/dev/null
        done
    done
}

# --- the record ----------------------------------------------------------------------------------------------------

conclude() { # exit code, timed out
    draft=$dir/result.$$
    header="exit=$1 timed_out=$2"
    describe out "$out_path"
    body_out=$shown
    describe err "$err_path"
    {
        echo "$header"
        # shellcheck disable=SC2086
        show out $body_out
        # shellcheck disable=SC2086
        show err $shown
        echo
        echo hb-end
    } >"$draft"
    mv "$draft" "$dir/result"
    rm -f "$dir/out" "$dir/err" "$dir/out.pipe" "$dir/err.pipe" # what is kept is linked to its path
}

describe() { # stream, where to keep it
    file=$dir/$1
    [ -e "$file" ] || : >"$file"
    cut=0 kept=0 shown_tail=0
    count "$file"
    if [ "$bytes" -gt "$max" ]; then
        cut=1
        dd if=/dev/null of="$file" bs=1 seek="$max" count=0 2>/dev/null
        count "$file"
    fi
    [ ! -e "$file.cut" ] || cut=1
    shown_head=$bytes
    if [ "$bytes" -gt "$head" ]; then
        shown_head=$head shown_tail=$tail
        if publish "$file" "$2"; then kept=1; else cut=1; fi
    fi
    shown="$shown_head $shown_tail"
    header="$header $1_bytes=$bytes $1_lines=$lines $1_cut=$cut $1_kept=$kept $1_head=$shown_head $1_tail=$shown_tail"
    header="$header $1_path=$2" # of this request: who asks again names other files
}

count() {
    lines=0 bytes=0
    [ -s "$1" ] || return 0
    # shellcheck disable=SC2046
    set -- $(wc -lc <"$1")
    lines=$1 bytes=$2
}

publish() {
    mkdir -p "${2%/*}" && { ln -f "$1" "$2" 2>/dev/null || cp "$1" "$2"; }
}

show() { # stream, bytes of its head, bytes of its tail
    [ "$2" -eq 0 ] || head -c "$2" "$dir/$1"
    [ "$3" -eq 0 ] || tail -c "$3" "$dir/$1"
}

# --- the end -------------------------------------------------------------------------------------------------------

# The kernel spares PID 1 and the caller, and no fork can slip through, which a walk over /proc cannot promise.
sweep() {
    if [ "$(id -u)" -eq 0 ]; then
        echo "refused: the user of a sandbox is never root" >&2
        exit 99
    fi
    kill -KILL -1 2>/dev/null
    exit 0
}

detach=
if command -v setsid >/dev/null 2>&1; then detach=setsid; fi
action=${1:-}
[ "$#" -eq 0 ] || shift
case $action in
run) run ;;
supervise) supervise "$@" ;;
sweep) sweep ;;
*) exit 64 ;;
esac
