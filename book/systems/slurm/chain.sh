#!/bin/bash
# Train, and evaluate if and only if the training ended well; an evaluation that cannot run any more is removed.
set -euo pipefail
train=$(sbatch --parsable train.sh)
sbatch --dependency="afterok:$train" --kill-on-invalid-dep=yes evaluate.sh
