#!/usr/bin/env bash
# All that is to be measured on the day a GPU is there, in order of worth, each part with a time limit of
# its own; the limits are shares that add up to all of the time. OUT/results.jsonl gets the figures, one
# JSON line each, OUT/log.txt all else that is printed, and OUT/traces.tar.gz a profile of one step of each
# app.
#
#     bash benchmarks/gpu_day.sh OUT                      # an hour
#     MINUTES=9 bash benchmarks/gpu_day.sh OUT            # what fits into nine minutes
#     SMALL=1 MINUTES=12 bash benchmarks/gpu_day.sh OUT   # every part with small sizes, on a CPU
#     PARTS='spo|trace' bash benchmarks/gpu_day.sh OUT    # the parts whose names match
#
# Of every part it says how many lines it left. One that ran into its limit (exit code 124) may have left
# none: small sizes mostly compile, for longer than that where other processes use the CPU. A second time
# the apps find their programs compiled.
#
# PYTHON is an interpreter that has the packages of this workspace and their dependencies. Without a
# package registry bring wheels: ours by `uv build --all-packages --wheel --out-dir wheels`, the others
# as `uv export --all-packages --no-dev --no-emit-workspace` lists them, less what is there. A search
# needs some MB, Othello's standard preset 2 GB of device memory.
set -uo pipefail
out=${1:?give a folder for the results}
python=$(command -v "${PYTHON:-python}") && python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
mkdir -p "$out" && out=$(cd "$out" && pwd)
touch "$out/results.jsonl"
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
budget=$((60 * ${MINUTES:-60})) runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

# part NAME PERCENT COMMAND...: at most this part of the time, and no more than is left.
part() {
    local name=$1 limit=$((budget * $2 / 100)) left=$((budget - SECONDS)) began=$SECONDS code before
    [[ $name =~ ${PARTS:-.} ]] || return
    shift 2
    ((limit > left)) && limit=$left
    if ((limit < 15)); then
        echo "$name: no time is left"
        return
    fi
    echo "== $name" >>"$out/log.txt"
    before=$(wc -l <"$out/results.jsonl")
    timeout --kill-after=10 "$limit" "$@" 2>>"$out/log.txt" | tee -a "$out/log.txt" |
        grep --line-buffered '^{' | sed -u "s/^{/{\"part\": \"$name\", /" >>"$out/results.jsonl"
    code=${PIPESTATUS[0]}
    echo "$name: $((SECONDS - began)) s, exit code $code, $(($(wc -l <"$out/results.jsonl") - before)) lines"
}

# train APP PERCENT [FLAGS]: trains for most of this part of the time; its last timings and evaluation.
train() {
    local app=$1 percent=$2 minutes
    shift 2
    minutes=$(awk "BEGIN {print $budget * $percent / 100 / 60 * 0.7}")
    part "train-$app" "$percent" "$python" -m "zero_$app" train "$@" \
        --max-minutes "$minutes" --out "$runs/$app"
    lines "speed-$app" 1 "$runs/$app/timings.jsonl"
    lines "evaluation-$app" 3 "$runs/$app/evaluations.jsonl"
}

# lines NAME NUMBER FILE: the last lines of a file, as results.
lines() {
    [[ -f $3 ]] && tail -n "$2" "$3" | sed "s/^{/{\"part\": \"$1\", /" >>"$out/results.jsonl"
}

if [[ -n ${SMALL:-} ]]; then
    cells=(64x32) deep=(16x32) network=1x16 standard=tiny minesweeper=tiny monsters=tiny opponent=greedy
    games=4 spo=(--env pendulum --preset tiny --repeats 1)
    rounds=(--simulations 8 --considered 8 --batches 2 --runs 2) boards=(--games 64 --turns 3)
    muzero=(cartpole --agent muzero --preset tiny)
else
    cells=(1024x64 1024x128 128x800 1x800) deep=(1024x64 128x800) network=6x128 standard=standard
    minesweeper=default monsters=default opponent=uct games=200 spo=(--env brax/ant)
    rounds=(--simulations 32 128 --batches 1 128 1024) boards=() muzero=(cartpole --agent muzero)
fi

"$python" -c 'import jax; print(jax.devices(), jax.__version__)' | tee -a "$out/log.txt"
# Walks that are kernels, plain ones, mctx and the floor take turns in each.
search=(search_vs_mctx.py --speed --kernels pallas --runs 3)
part search 18 "$python" "${search[@]}" --cells "${cells[@]}"
part search-network 10 "$python" "${search[@]}" --network "$network" --cells "${deep[@]}"
# The same with the loops of the search in one CUDA graph (docs/accelerators.md).
part search-graph 7 env XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_command_buffer=+WHILE" \
    "$python" "${search[@]}" --cells "${deep[@]}"
part env-othello 3 "$python" envs_othello.py "${boards[@]}"
train othello 17 --preset "$standard"
part strength-othello 6 "$python" -m zero_othello eval "$runs/othello" --opponent "$opponent" \
    --games "$games" --json
part rounds 3 "$python" search_rounds.py "$runs/othello" --question time "${rounds[@]}"
part spo 6 "$python" spo_training.py "${spo[@]}"
train minesweeper 8 --preset "$minesweeper"
train monsters 5 --preset "$monsters"
train cli 5 "${muzero[@]}"
for app in othello minesweeper monsters spo; do
    part "trace-$app" 3 "$python" _trace.py "$app" "$runs/traces/$app" ${SMALL:+--preset tiny}
done
[[ -d $runs/traces ]] && tar -C "$runs" -czf "$out/traces.tar.gz" traces
echo "the results are in $out/results.jsonl"
