#!/usr/bin/env bash
# Sends a generated batch through the running stack, waits for it and fetches its results.
. "$(dirname "$0")/settings.sh"

demo_dir="$local_dir/demo"
lines=${BATCH_LINES:-2000}
mkdir -p "$demo_dir"

# Chat requests as anybody would write them (awk, because a shell loop takes seconds). The simulated model takes 40 ms
# for most; it turns one in a hundred away once, which is tried again, and refuses one in five hundred, which fails alone.
# BATCH_MODEL asks a real server's model for all of them.
requests() {
  awk -v lines="$lines" -v model="${BATCH_MODEL:-}" 'BEGIN {
    for (i = 1; i <= lines; i++) {
      simulated = i % 500 == 3 ? "sim-400" : i % 100 == 7 ? "sim-429-once" : "sim-slow-40"
      printf "{\"custom_id\":\"line-%05d\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Name a use for the number %d.\"}]}}\n", i, model ? model : simulated, i
    }
  }'
}
requests >"$demo_dir/input.jsonl"

# shellcheck source=/dev/null
. "$local_dir/env"
printf '\n$ holdfast submit %s --wait     # %d lines, the first:\n  ' "$demo_dir/input.jsonl" "$lines"
head -n 1 "$demo_dir/input.jsonl"
"$bin_dir/holdfast" submit "$demo_dir/input.jsonl" --wait | tee "$demo_dir/report.txt"

batch=$(sed -n 's/^Batch \([^ :]*\):.*/\1/p' "$demo_dir/report.txt" | head -n 1)
"$bin_dir/holdfast" results "$batch" --output "$demo_dir/output.jsonl" --errors "$demo_dir/errors.jsonl"
printf '\n%8d lines in %s\n%8d lines in %s\n\n' "$(wc -l <"$demo_dir/output.jsonl")" "$demo_dir/output.jsonl" "$(wc -l <"$demo_dir/errors.jsonl")" "$demo_dir/errors.jsonl"
if [ -z "${BATCH_MODEL:-}${UPSTREAM_URL:-}" ]; then
  printf 'Failures are part of the demo: one line in 500 asks for sim-400, which the simulated model refuses.\n\n'
fi
