#!/bin/bash
# Two hosts with eight GPUs each, one process a GPU: sbatch docs/launch/slurm.sh
#SBATCH --job-name=othello
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
# Five minutes before the end, or where the job is preempted, all processes save and stop.
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

# On a disk that all hosts see. A requeued job goes on with its run.
RUN="${RUN:-$SLURM_SUBMIT_DIR/runs/othello-$SLURM_JOB_ID}"
resume=()
if [[ -f "$RUN/config.json" ]]; then resume=(--resume); fi

srun --kill-on-bad-exit=1 uv run --no-sync othello train --preset standard --out "$RUN" "${resume[@]}"
