#include "capture.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "violations.h"

namespace fake_gpu {
namespace {

std::map<uint64_t, std::unique_ptr<Capture>>& captures() {
  static auto* const all = new std::map<uint64_t, std::unique_ptr<Capture>>;
  return *all;
}

std::atomic<uint64_t> next_id{1};

size_t add_stream(Capture& capture, Stream* stream) {
  const size_t number = capture.graph->streams++;
  capture.numbers.emplace(stream, number);
  capture.last_steps.push_back(0);
  capture.known.emplace_back();
  stream->capture = capture.id;
  return number;
}

void learn(std::map<size_t, size_t>& into, const std::map<size_t, size_t>& other) {
  for (const auto& [stream, step] : other) into[stream] = std::max(into[stream], step);
}

void destroy_later(UserObject* object) {
  std::thread([object] {
    in_callback() = true;
    object->destroy(object->argument);
    delete object;
  }).detach();
}

// The operation of `stream` that was enqueued last, for those who wait for it.
Recorded recorded_now(const Stream* stream, std::shared_ptr<std::atomic<uint64_t>> time) {
  return {stream->id, stream->enqueued, clock_after(stream), std::move(time)};
}

CUresult enqueue_wait(Stream* stream, const Recorded& recorded) {
  const CUresult result = enqueue(stream, "a graph's edge", {}, [recorded] {
    std::unique_lock waiting(engine().mutex);
    wait_done(waiting, recorded.stream, recorded.number);
  });
  if (result == CUDA_SUCCESS) join(stream->clock, recorded.clock);
  return result;
}

}  // namespace

Capture* capture_with(uint64_t id) {
  const auto found = captures().find(id);
  return found == captures().end() ? nullptr : found->second.get();
}

Capture* capture_of(const Stream* stream) { return capture_with(stream->capture); }

CUresult begin_capture(Stream* origin, CaptureMode mode) {
  if (origin->is_legacy || capture_of(origin) != nullptr) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  auto capture = std::make_unique<Capture>();
  capture->id = next_id++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = origin;
  capture->graph = std::make_unique<Graph>();
  add_stream(*capture, origin);
  captures().emplace(capture->id, std::move(capture));
  return CUDA_SUCCESS;
}

CUresult end_capture(Stream* origin, std::unique_ptr<Graph>* graph) {
  Capture* capture = capture_of(origin);
  if (capture == nullptr || capture->origin != origin) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CaptureMode::kRelaxed && capture->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  const auto& joined = capture->known[0];
  for (size_t number = 1; number < capture->last_steps.size(); ++number) {
    const auto known = joined.find(number);
    const size_t step = known == joined.end() ? 0 : known->second;
    if (step < capture->last_steps[number] && result == CUDA_SUCCESS) {
      result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
  }
  for (const auto& [stream, number] : capture->numbers) {
    if (engine().streams.contains(stream)) stream->capture = 0;
  }
  if (result == CUDA_SUCCESS) {
    *graph = std::move(capture->graph);
  } else {
    drop_objects(*capture->graph);
  }
  captures().erase(capture->id);
  return result;
}

CUresult capture_step(Stream* stream, std::function<CUresult(Stream*, Launch&)> give,
                      bool does_something) {
  Capture& capture = *capture_of(stream);
  if (capture.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const size_t number = capture.numbers.at(stream);
  capture.graph->steps.push_back([number, give = std::move(give)](Launch& launch) {
    return give(launch.streams[number], launch);
  });
  if (does_something) {
    capture.last_steps[number] = capture.graph->steps.size();
    capture.known[number][number] = capture.last_steps[number];
  }
  return CUDA_SUCCESS;
}

CUresult capture_record(Stream* stream, Event* event) {
  Capture& capture = *capture_of(stream);
  const size_t step = capture.graph->steps.size();
  const auto give = [step](Stream* to, Launch& launch) {
    auto time = std::make_shared<std::atomic<uint64_t>>(0);
    const CUresult result = enqueue(to, "cuEventRecord", {}, [time] { *time = now_ns(); });
    if (result == CUDA_SUCCESS) launch.recorded[step] = recorded_now(to, time);
    return result;
  };
  const CUresult result = capture_step(stream, give, false);
  if (result != CUDA_SUCCESS) return result;
  event->captured = std::make_shared<CapturedEvent>(
      CapturedEvent{capture.id, step, capture.known[capture.numbers.at(stream)]});
  return CUDA_SUCCESS;
}

CUresult capture_wait(Stream* stream, const Event& event) {
  Capture* capture = capture_with(event.captured->capture);
  if (capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Capture* own = capture_of(stream);
  if (own == nullptr) {
    add_stream(*capture, stream);
  } else if (own != capture) {
    own->is_invalid = capture->is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  const size_t step = event.captured->step;
  learn(capture->known[capture->numbers.at(stream)], event.captured->known);
  const auto give = [step](Stream* to, Launch& launch) {
    return enqueue_wait(to, launch.recorded.at(step));
  };
  return capture_step(stream, give, false);
}

CaptureMode& capture_mode() {
  static thread_local CaptureMode mode = CaptureMode::kGlobal;
  return mode;
}

bool is_refused_by_capture(const char* caller) {
  if (capture_mode() == CaptureMode::kRelaxed) return false;
  for (const auto& [id, capture] : captures()) {
    if (capture->mode == CaptureMode::kRelaxed) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool any =
        capture->mode == CaptureMode::kGlobal && capture_mode() == CaptureMode::kGlobal;
    if (!own && !any) continue;
    violate("capture", std::string(caller) +
                           " is called by a thread that has not made its mode of "
                           "capture relaxed, while a stream is being captured: "
                           "the capture is lost.");
    capture->is_invalid = true;
    return true;
  }
  return false;
}

CUresult launch_graph(GraphExec& exec, Stream* stream) {
  if (capture_of(stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  while (exec.own_streams.size() + 1 < exec.graph.streams) {
    exec.own_streams.push_back(create_stream(stream->context, CU_STREAM_NON_BLOCKING));
  }
  Launch launch;
  launch.streams.push_back(stream);
  const CUresult begun = enqueue(stream, "cuGraphLaunch", {}, [] {});
  if (begun != CUDA_SUCCESS) return begun;
  // A launch comes after those before of the same graph, whatever their streams.
  for (const auto& [other, number] : exec.launched) {
    if (const CUresult error = enqueue_wait(stream, {other, number, exec.launched, nullptr})) {
      return error;
    }
  }
  const Recorded begin = recorded_now(stream, nullptr);
  for (Stream* own : exec.own_streams) {
    launch.streams.push_back(own);
    if (const CUresult error = enqueue_wait(own, begin)) return error;
  }
  for (const Graph::Step& step : exec.graph.steps) {
    if (const CUresult error = step(launch)) return error;
  }
  exec.context = stream->context;
  for (const Stream* each : launch.streams) join(exec.launched, clock_after(each));
  return CUDA_SUCCESS;
}

void release_object(UserObject* object, unsigned count) {
  object->count -= std::min(object->count, count);
  if (object->count == 0) destroy_later(object);
}

// The end of an object tells the host that its graph's launches are done.
void drop_objects_when_done(const GraphExec& exec) {
  std::thread([context = exec.context, launched = exec.launched, graph = exec.graph] {
    std::unique_lock lock(engine().mutex);
    for (const auto& [stream, number] : launched) wait_done(lock, stream, number);
    if (context != nullptr) host_learns(context, launched);
    drop_objects(graph);
  }).detach();
}

void drop_objects(const Graph& graph) {
  for (const auto& [object, count] : graph.objects) release_object(object, count);
}

}  // namespace fake_gpu
