#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --partition=train
#SBATCH --array=0-15%4
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=12
#SBATCH --mem=200G
#SBATCH --time=2:00:00
#SBATCH --requeue
#SBATCH --output=%x-%A-%a.log
# Sixteen jobs of one GPU each, at most four at a time; several share a node.
rates=(1e-4 3e-4 1e-3 3e-3)
widths=(256 512 1024 2048)
python train.py --rate="${rates[SLURM_ARRAY_TASK_ID % 4]}" \
  --width="${widths[SLURM_ARRAY_TASK_ID / 4]}"
