#!/bin/bash
#SBATCH --job-name=links
#SBATCH --partition=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=12
#SBATCH --exclusive
#SBATCH --time=20
#SBATCH --output=%x-%j.log
# mpiexec of an MPI that was built for Slurm reads the nodes and the ranks from the allocation.
mpiexec -n "$SLURM_NTASKS" all_reduce_perf -b 8 -e 8G -f 2 -g 1
