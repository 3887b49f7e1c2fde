#!/bin/bash
#SBATCH --job-name=evaluate
#SBATCH --partition=train
#SBATCH --nodes=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=96
#SBATCH --time=1:00:00
#SBATCH --output=%x-%j.log
torchrun --standalone --nproc-per-node=8 evaluate.py --checkpoint=latest
