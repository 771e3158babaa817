"""deepmd-kit's TensorFlow training as PyPI has it: docs/deepmd-kit.md."""

import itertools
import json

import numpy as np
import pytest

from tests.kit import third_party
from tests.kit.third_party import furthest

pytestmark = [
    pytest.mark.slow,  # imports TensorFlow in every rank, and builds deepmd-kit's graphs
    third_party.is_needed("deepmd"),
]

_ATOMS, _EDGE = 24, 7.0
_READ = """
import sys, numpy as np, tensorflow as tf
checkpoint = tf.train.load_checkpoint(sys.argv[1])
names = sorted(checkpoint.get_variable_to_shape_map())
np.savez(sys.argv[2], **{name: checkpoint.get_tensor(name) for name in names})
"""


def frames(count):
    """Coordinates and forces of `count` frames.

    The frames are one frame with its axes exchanged, so that all have the statistics by which
    deepmd-kit scales its descriptors; the forces are unrelated, so that each has a gradient of its
    own.
    """
    rng = np.random.default_rng(1)
    at = np.stack(np.meshgrid(*[np.arange(3)] * 3, indexing="ij"), -1).reshape(-1, 3)[:_ATOMS]
    first = at * _EDGE / 3 + rng.normal(0, 0.2, (_ATOMS, 3))
    axes = itertools.islice(itertools.permutations(range(3)), count)
    coordinates = np.array([first[:, order] for order in axes])
    return coordinates, rng.normal(0, 0.3, (count, _ATOMS, 3))


def write_data(folder, coordinates, forces):
    count = len(coordinates)
    (folder / "data/set.000").mkdir(parents=True)
    (folder / "data/type.raw").write_text("0\n" * 8 + "1\n" * 16)
    (folder / "data/type_map.raw").write_text("O\nH\n")
    for name, values in {
        "coord": coordinates.reshape(count, -1),
        "force": forces.reshape(count, -1),
        "energy": np.full(count, 2.0),
        "box": np.tile(_EDGE * np.eye(3).reshape(1, 9), (count, 1)),
    }.items():
        np.save(folder / f"data/set.000/{name}.npy", values)


def write_input(path, batch):
    net = {"neuron": [8, 16], "resnet_dt": False, "seed": 1}
    descriptor = {"type": "se_e2_a", "sel": [16, 24], "rcut_smth": 0.5, "rcut": 3.4, **net}
    prefactors = {"start_pref_e": 0.02, "limit_pref_e": 1, "start_pref_v": 0, "limit_pref_v": 0}
    path.write_text(
        json.dumps(
            {
                "model": {
                    "type_map": ["O", "H"],
                    "descriptor": descriptor | {"axis_neuron": 4},
                    "fitting_net": net | {"neuron": [16, 16]},
                },
                "learning_rate": {
                    "type": "exp", "start_lr": 0.001, "stop_lr": 1e-5, "decay_steps": 50,
                    "scale_by_worker": "none",
                },
                "loss": {"type": "ener", "start_pref_f": 1000, "limit_pref_f": 1, **prefactors},
                "training": {
                    "training_data": {"systems": ["data"], "batch_size": batch},
                    "numb_steps": 10, "save_freq": 10, "disp_freq": 10, "seed": 10,
                },
            }
        )
    )  # fmt: skip


def train(folder, ranks, batch):
    """The trained variables of rank 0. Rank r trains in the folder r."""
    write_input(folder / "input.json", batch)
    threads = {"DP_INTRA_OP_PARALLELISM_THREADS": "1", "DP_INTER_OP_PARALLELISM_THREADS": "1"}
    script = 'cd "$HOROVOD_RANK" && exec dp --tf train ../input.json'
    launch = ("-m", "hvdtune", "run", "-np", ranks, "sh", "-c", script)
    third_party.run("deepmd", *launch, folder=folder, **threads)
    target = folder / "weights.npz"
    third_party.run("deepmd", "-c", _READ, folder / "0/model.ckpt-10", target, folder=folder)
    return dict(np.load(target))


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_to_the_weights_of_one_process_with_the_whole_batch(tmp_path, ranks):
    coordinates, forces = frames(ranks)
    for name in ("ranks", "whole", "alone"):
        (tmp_path / name).mkdir()
    for rank in range(ranks):
        own = slice(rank, rank + 1)
        write_data(tmp_path / f"ranks/{rank}", coordinates[own], forces[own])
    write_data(tmp_path / "whole/0", coordinates, forces)
    write_data(tmp_path / "alone/0", coordinates[:1], forces[:1])
    together = train(tmp_path / "ranks", ranks, 1)
    assert furthest(together, train(tmp_path / "whole", 1, ranks)) < 1e-12
    # Which they would not if rank 0 trained by itself.
    assert furthest(together, train(tmp_path / "alone", 1, 1)) > 1e-6
