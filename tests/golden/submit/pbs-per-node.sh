#!/bin/bash
#PBS -N resnet
#PBS -l select=4:ncpus=48:mpiprocs=1:ngpus=8
#PBS -l place=scatter
#PBS -l walltime=36:30:00
#PBS -q gpu
#PBS -A physics
#PBS -j oe
#PBS -o logs/resnet.out
# Written by `hvdtune submit` (0.1.0) for PBS, whose `qsub` reads the lines above.

# The script of each node. It gets its number, but not this shell's environment.
read -r -d '' start << 'END' || true
set -e -o pipefail
cd '/home/ada/my net'
module purge
module load cuda/12.4
source '/home/ada/my envs/train/bin/activate'
export HVDTUNE_NODE="$1" HVDTUNE_NODES=4
exec hvdtune run -np 32 --trials 40 -- train.py --lr 0.1 --note 'it'"'"'s a $HOME'
END

# One `hvdtune run` on each node, together the 32 ranks, 8 on each node
started=()
for ((node = 0; node < 4; node++)); do
    pbsdsh -n "$node" -- /bin/bash -l -c "$start" hvdtune "$node" &
    started+=("$!")
done
code=0
for each in "${started[@]}"; do wait "$each" || code=$?; done
exit "$code"
