// The functions of libcuda.so.1 for capturing streams into graphs, and for graphs.
#include <memory>
#include <set>

#include "../engine/capture.h"
#include "../engine/violations.h"
#include "../include/fake_cuda.h"
#include "entered.h"

using namespace fake_gpu;

namespace {

// Graphs of which somebody has the handle; the engine's mutex guards them.
std::set<const void*>& graphs() {
  static auto* const all = new std::set<const void*>;
  return *all;
}

template <typename Handle>
bool is_valid(Handle handle, const char* caller) {
  if (graphs().contains(handle)) return true;
  violate("dead-handle", std::string(caller) + " is given a graph that does not exist.");
  return false;
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
  if (const CUresult error = entered("cuStreamBeginCapture")) return error;
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuStreamBeginCapture");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return begin_capture(stream, static_cast<CaptureMode>(mode));
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  if (const CUresult error = entered("cuStreamEndCapture")) return error;
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuStreamEndCapture");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *graph = nullptr;
  std::unique_ptr<Graph> made;
  const CUresult result = end_capture(stream, &made);
  if (result != CUDA_SUCCESS) return result;
  graphs().insert(made.get());
  *graph = reinterpret_cast<CUgraph>(made.release());
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  return cuStreamGetCaptureInfo_v2(handle, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, int* status, uint64_t* id, CUgraph* graph,
                                   const void** nodes, size_t* node_count) {
  if (const CUresult error = entered("cuStreamGetCaptureInfo")) return error;
  const std::lock_guard lock(engine().mutex);
  const Stream* stream = stream_of(handle, "cuStreamGetCaptureInfo");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Capture* capture = capture_of(stream);
  *status = capture == nullptr    ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture == nullptr) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(capture->graph.get());
  if (nodes != nullptr) *nodes = nullptr;
  if (node_count != nullptr) *node_count = 0;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  const auto before = static_cast<int>(capture_mode());
  capture_mode() = static_cast<CaptureMode>(*mode);
  *mode = before;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  if (const CUresult error = entered("cuGraphInstantiate")) return error;
  const std::lock_guard lock(engine().mutex);
  if (!is_valid(graph, "cuGraphInstantiate")) return CUDA_ERROR_INVALID_HANDLE;
  auto* made = new GraphExec{*reinterpret_cast<Graph*>(graph), {}, nullptr, {}};
  for (const auto& [object, count] : made->graph.objects) object->count += count;
  graphs().insert(made);
  *exec = reinterpret_cast<CUgraphExec>(made);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  if (const CUresult error = entered("cuGraphLaunch")) return error;
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuGraphLaunch");
  if (stream == nullptr || !is_valid(exec, "cuGraphLaunch")) return CUDA_ERROR_INVALID_HANDLE;
  return launch_graph(*reinterpret_cast<GraphExec*>(exec), stream);
}

// What it was launched for goes on: its streams end when they have done what they were given.
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (const CUresult error = entered("cuGraphExecDestroy")) return error;
  const std::lock_guard lock(engine().mutex);
  if (!is_valid(exec, "cuGraphExecDestroy")) return CUDA_ERROR_INVALID_HANDLE;
  auto* gone = reinterpret_cast<GraphExec*>(exec);
  for (Stream* stream : gone->own_streams) destroy_stream(stream);
  drop_objects_when_done(*gone);
  graphs().erase(exec);
  delete gone;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  if (const CUresult error = entered("cuGraphDestroy")) return error;
  const std::lock_guard lock(engine().mutex);
  if (!is_valid(graph, "cuGraphDestroy")) return CUDA_ERROR_INVALID_HANDLE;
  drop_objects(*reinterpret_cast<Graph*>(graph));
  graphs().erase(graph);
  delete reinterpret_cast<Graph*>(graph);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject* object, void* argument, void (*destroy)(void*),
                            unsigned count, unsigned) {
  if (const CUresult error = entered("cuUserObjectCreate")) return error;
  if (destroy == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  *object = reinterpret_cast<CUuserObject>(new UserObject{argument, destroy, count});
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  if (const CUresult error = entered("cuUserObjectRelease")) return error;
  const std::lock_guard lock(engine().mutex);
  release_object(reinterpret_cast<UserObject*>(object), count);
  return CUDA_SUCCESS;
}

// A graph that is still being captured may be given, too.
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                 unsigned flags) {
  if (const CUresult error = entered("cuGraphRetainUserObject")) return error;
  const std::lock_guard lock(engine().mutex);
  auto* own = reinterpret_cast<UserObject*>(object);
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) own->count += count;
  reinterpret_cast<Graph*>(graph)->objects[own] += count;
  return CUDA_SUCCESS;
}
}
