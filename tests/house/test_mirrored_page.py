"""The script of docs/from-multiworkermirroredstrategy.md trains as the page says."""

import numpy as np
import pytest

from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/from-multiworkermirroredstrategy.md")


def test_the_script_has_the_lines_that_the_difference_adds_and_none_that_it_takes():
    script = PAGE.block("script").splitlines()
    lines = PAGE.block("diff").splitlines()
    assert [line for line in lines if line[0] == "+" and line[1:] not in script] == []
    kept = {"    model = build()", '    model.save("model.keras")'}
    assert [line for line in lines if line[0] == "-" and line[1:] in {*script} - kept] == []


def weights(folder, *words):
    (folder / "train.py").write_text(PAGE.block("script"))
    import keras  # takes seconds, and the other test does without

    run_cli(*words, folder=folder, TF_CPP_MIN_LOG_LEVEL="3", HVDTUNE_START_TIMEOUT_S="100")
    return keras.models.load_model(folder / "model.keras").get_weights()


@pytest.mark.slow  # imports TensorFlow in seven processes
def test_ranks_train_to_the_weights_of_one_process(tmp_path):
    alone = weights(tmp_path, "run", "-np", "1", "train.py")
    for line in PAGE.block("commands").splitlines():
        for own, together in zip(alone, weights(tmp_path, *words_of(line)), strict=True):
            np.testing.assert_allclose(together, own, rtol=0, atol=1e-5)
