"""What Horovod 0.28.1's modules have, as lists, is what hvdtune's modules have."""

import importlib
import inspect

import pytest
import tensorflow as tf

from tests.contract.api_lists import ELASTIC, FUNCTIONS, METHODS, OTHERS

MODULES = {name: importlib.import_module(f"hvdtune.{name}") for name in FUNCTIONS}


def parameters(function):
    rows = inspect.signature(function).parameters.values()
    return [(row.name, row.default, row.kind) for row in rows if row.kind is not row.VAR_KEYWORD]


def each_name(lists):
    """Rows of a module and a name."""
    return [
        pytest.param(module, name, id=f"{module}.{name}")
        for module, names in lists.items()
        for name in names
    ]


@pytest.mark.parametrize(("module", "name"), each_name(FUNCTIONS))
def test_a_function_takes_what_horovod_s_takes(module, name):
    hvd = MODULES[module]
    expected = parameters(eval(f"lambda {FUNCTIONS[module][name]}: None", vars(hvd)))
    function = getattr(hvd, name)
    if isinstance(function, type):  # as it is called: without self
        function = function.__init__.__get__(object())
    found = parameters(function)
    assert name in hvd.__all__
    assert found[: len(expected)] == expected
    assert all(default is not inspect.Parameter.empty for _, default, _ in found[len(expected) :])


@pytest.mark.parametrize(("made", "name"), each_name(METHODS))
def test_a_method_takes_what_horovod_s_takes(made, name):
    wrapped = tf.GradientTape() if "Tape" in made else tf.compat.v1.train.AdamOptimizer()
    method = getattr(getattr(MODULES["tensorflow"], made)(wrapped), name)
    expected = parameters(eval(f"lambda {METHODS[made][name]}: None"))
    assert parameters(method)[: len(expected)] == expected


@pytest.mark.parametrize(("module", "name"), each_name(OTHERS))
def test_a_name_of_horovod_s_is_there(module, name):
    hvd = MODULES[module]
    found, wanted = getattr(hvd, name), OTHERS[module][name]
    assert isinstance(found, wanted) if isinstance(wanted, type) else found == wanted
    assert name in hvd.__all__


@pytest.mark.parametrize("module", FUNCTIONS)
def test_every_public_name_is_there_once(module):
    hvd = MODULES[module]
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert len(set(hvd.__all__)) == len(hvd.__all__)


@pytest.mark.parametrize(("module", "name"), each_name(ELASTIC))
def test_a_name_of_elastic_training_is_there(module, name):
    elastic = MODULES[module].elastic
    assert callable(getattr(elastic, name))
    assert name in elastic.__all__


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", ["Compressor", "NoneCompressor", "FP16Compressor"])
def test_a_compressor_takes_a_tensor_and_gives_one_back(framework, name):
    kind = getattr(MODULES[framework].compression, name)
    assert [row[0] for row in parameters(kind.compress)] == ["tensor"]
    assert [row[0] for row in parameters(kind.decompress)] == ["tensor", "ctx"]


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_compression_names_the_compressors(framework):
    hvd = MODULES[framework]
    assert hvd.Compression.none is hvd.compression.NoneCompressor
    assert hvd.Compression.fp16 is hvd.compression.FP16Compressor
