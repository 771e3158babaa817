#!/bin/bash
#BSUB -J resnet
#BSUB -n 4
#BSUB -R "span[ptile=1]"
#BSUB -R "affinity[core(48)]"
#BSUB -gpu "num=8"
#BSUB -W 36:30
#BSUB -q gpu
#BSUB -P physics
#BSUB -o logs/resnet.out
# Written by `hvdtune submit` (0.1.0) for LSF, whose `bsub` reads the lines above.

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

# The names of the nodes
mapfile -t hosts < <(awk '!seen[$1]++ { print $1 }' "$LSB_DJOB_HOSTFILE")

# One `hvdtune run` on each node, together the 32 ranks, 8 on each node
started=()
for ((node = 0; node < 4; node++)); do
    blaunch -no-shell "${hosts[node]}" /bin/bash -l -c "$start" hvdtune "$node" &
    started+=("$!")
done
code=0
for each in "${started[@]}"; do wait "$each" || code=$?; done
exit "$code"
