#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --partition=train
#SBATCH --nodes=32
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=96
#SBATCH --exclusive
#SBATCH --switches=1@30:00
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@150
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# All or nothing: 32 nodes start together, below one leaf switch if that takes
# no more than half an hour.

# The warning comes to this shell alone. A file carries it to rank 0, which tells
# the others at which step to stop.
stop="stop-$SLURM_JOB_ID"
rm -f "$stop"
trap 'touch "$stop"' USR1

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 torchrun \
  --nnodes="$SLURM_NNODES" --nproc-per-node=8 --max-restarts=0 \
  --rdzv-backend=c10d --rdzv-endpoint="$head:29500" \
  --rdzv-id="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}" \
  train.py --resume=latest --checkpoint-every=500 --stop-if-exists="$stop" &
step=$!

wait "$step"
status=$?
if [ -e "$stop" ]; then
  wait "$step" # the trap cut the first wait short; this one lasts until the save
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
