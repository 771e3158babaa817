// One function per class; module_py.cc calls them all.
#pragma once

#include <pybind11/pybind11.h>

namespace hvdtune::bindings {

void register_runtime(pybind11::module_& module);
void register_group(pybind11::module_& module);
void register_pool(pybind11::module_& module);
void register_job_server(pybind11::module_& module);
void register_mpi(pybind11::module_& module);
void register_gpu(pybind11::module_& module);
void register_garbage(pybind11::module_& module);

}  // namespace hvdtune::bindings
