"""Spack's recipe: `packages/py_hvdtune/package.py` of a repository of your own, for
Spack 1.0 and later.

make wheels && cd dist && spack install --no-checksum py-hvdtune +mpi
"""

import os

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyHvdtune(PythonPackage):
    """Distributed training with Horovod's API, and the tools that say why it is slow and prove
    what makes it fast."""

    # There is no address to fetch it from: the sdist is in the folder in which spack runs.
    manual_download = True

    license("Apache-2.0")

    version("0.1.0")

    variant("mpi", default=False, description="The plugin for jobs that mpirun starts")
    variant("torch", default=True, description="PyTorch")
    variant("tensorflow", default=False, description="TensorFlow")

    depends_on("cxx", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-pybind11@3.0:", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja@1.11:", type="build")

    depends_on("py-numpy@1.23:", type=("build", "run"))
    depends_on("py-msgspec@0.18.5:", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-ruamel-yaml@0.17.40:", type=("build", "run"))
    depends_on("py-cloudpickle@2.2:", type=("build", "run"))
    depends_on("py-click@8.1.4:", type=("build", "run"))

    depends_on("mpi", when="+mpi", type=("build", "link", "run"))
    depends_on("py-torch@2.4:", when="+torch", type=("build", "run"))
    depends_on("py-tensorflow@2.16:", when="+tensorflow", type=("build", "run"))

    def url_for_version(self, version):
        return f"file://{os.getcwd()}/hvdtune-{version}.tar.gz"

    def setup_build_environment(self, env):
        env.set("CMAKE_ARGS", "-DHVDTUNE_MPI=" + ("ON" if self.spec.satisfies("+mpi") else "OFF"))
