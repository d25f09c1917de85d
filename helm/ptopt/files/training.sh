# One node of a training: torchrun of all nodes meets at the first one. Arguments: the recipe, and keys of it to change.
# TRAINING, NODES, PROCESSES (of a node) and JOB_COMPLETION_INDEX come from the Job.
set -euo pipefail
runs=$PWD/$TRAINING
mkdir -p "$runs"
# After a restart all nodes find the folder of the run that was stopped, and go on from its last checkpoint. At the first
# start none does: it is made when all have met.
before=$(find "$runs" -mindepth 2 -maxdepth 2 -name settings.yaml | sort | head -n 1)
if [ -n "$before" ]; then
  set -- --resume "$(dirname "$before")"
else
  set -- "$@" "output=$runs"
fi
# No restarts here: when a process ends, all pods of the Job begin again together.
torchrun --nnodes "$NODES" --nproc-per-node "$PROCESSES" --max-restarts 0 --rdzv-backend c10d \
  --rdzv-id "$TRAINING" --rdzv-endpoint "$TRAINING-0.$TRAINING:29400" -m training.recipes.sft "$@" &
child=$!
trap 'kill -TERM "$child"' TERM
wait "$child" || wait "$child"
# A run that SIGTERM ended has a checkpoint and no adapter: the Job is not done.
ls "$runs"/*/adapter/card.json
