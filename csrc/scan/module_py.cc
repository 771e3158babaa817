// The Python module hvdtune.timeline._scan; readers work without it, only slower.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "scan/scanner.h"

namespace py = pybind11;

namespace hvdtune::scan {
namespace {

template <typename T>
py::array_t<T> array_of(std::vector<T>&& values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  const py::capsule owner(owned.get(),
                          [](void* kept) { delete static_cast<std::vector<T>*>(kept); });
  const auto* vector = owned.release();
  return py::array_t<T>(static_cast<py::ssize_t>(vector->size()), vector->data(), owner);
}

py::tuple arrays_of(Columns& columns) {
  py::tuple numbers(kNumbers);
  for (std::size_t k = 0; k < kNumbers; ++k) numbers[k] = array_of(std::move(columns.numbers[k]));
  return py::make_tuple(array_of(std::move(columns.phase)), array_of(std::move(columns.name)),
                        array_of(std::move(columns.category)), array_of(std::move(columns.pid)),
                        array_of(std::move(columns.tid)), array_of(std::move(columns.id)),
                        array_of(std::move(columns.at_ns)), array_of(std::move(columns.lasted_ns)),
                        numbers, array_of(std::move(columns.args_ends)),
                        array_of(std::move(columns.args)));
}

py::tuple run(Scanner& scanner, const py::bytes& data, std::size_t at) {
  Columns whole, halves;
  std::size_t stop = at;
  const auto text = static_cast<std::string_view>(data);
  if (at >= text.size()) throw py::index_error("at is beyond the end of the data");
  {
    const py::gil_scoped_release released;
    stop = scanner.run(text, at, whole, halves);
  }
  return py::make_tuple(stop, arrays_of(whole), arrays_of(halves));
}

py::list texts(const Scanner& scanner, std::size_t from) {
  py::list list;
  for (; from < scanner.texts().size(); ++from) list.append(py::str(scanner.texts()[from]));
  return list;
}

}  // namespace
}  // namespace hvdtune::scan

PYBIND11_MODULE(_scan, module) {
  using hvdtune::scan::Scanner;
  py::class_<Scanner>(module, "Scanner")
      .def(py::init<>())
      .def("run", &hvdtune::scan::run, py::arg("data"), py::arg("at"))
      .def("code", &Scanner::code, py::arg("text"))
      .def("texts", &hvdtune::scan::texts, py::arg("start"));
}
