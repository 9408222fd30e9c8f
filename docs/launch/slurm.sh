#!/bin/bash
# Two hosts with eight GPUs each, one process a GPU: sbatch docs/launch/slurm.sh
#SBATCH --job-name=othello
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
# Five minutes before the end, or where the job is preempted, all processes save and stop; this script
# itself is not told to.
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

# On a disk that all hosts see. A requeued job keeps its id, and goes on with its run.
RUN="${RUN:-$SLURM_SUBMIT_DIR/runs/othello-$SLURM_JOB_ID}"
resume=()
if [[ -f "$RUN/config.json" ]]; then resume=(--resume); fi

srun --kill-on-bad-exit=1 uv run --no-sync othello train --preset standard --out "$RUN" "${resume[@]}"

# Without an error it ends here, also where it was told to stop. All steps are done if this file is there.
if [[ ! -f "$RUN/finished" ]]; then scontrol requeue "$SLURM_JOB_ID"; fi
