// Streams that are captured, and the graphs that come of it.
//
// What a captured stream is given becomes a step of its graph. When the graph is launched, every
// step is given to a stream anew: to the launch's own what the origin of the capture was given, and
// to one stream of the graph each what the streams were given that joined it. So the order of
// accesses is checked at each launch, as for everything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "engine.h"

namespace fake_gpu {

enum class CaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// What a graph keeps: the function is called when the last graph that holds it is gone.
struct UserObject {
  void* argument;
  void (*destroy)(void*);
  unsigned count;
};

// One launch of a graph.
struct Launch {
  std::vector<Stream*> streams;         // by the capture's number of them
  std::map<size_t, Recorded> recorded;  // by the step that recorded an event
};

struct Graph {
  // Gives a step to its stream. The engine's mutex is held, as by all who enqueue.
  using Step = std::function<CUresult(Launch&)>;
  std::vector<Step> steps;
  size_t streams = 0;
  std::map<UserObject*, unsigned> objects;  // and how often it counts
};

// A graph that can be launched.
struct GraphExec {
  Graph graph;
  std::vector<Stream*> own_streams;  // of the second number on
  Context* context = nullptr;        // of the last launch
  Clock launched;                    // what the launches so far have enqueued
};

struct Capture {
  uint64_t id;
  CaptureMode mode;
  std::thread::id thread;
  Stream* origin;
  std::unique_ptr<Graph> graph;
  std::map<Stream*, size_t> numbers;
  // Of each number: its last step that does something, and what it knows to come before its next.
  std::vector<size_t> last_steps;
  std::vector<std::map<size_t, size_t>> known;
  bool is_invalid = false;
};

// What an event that was recorded during a capture stands for.
struct CapturedEvent {
  uint64_t capture;
  size_t step;
  std::map<size_t, size_t> known;
};

// --- The engine's mutex is held by the caller.

// The capture that the stream takes part in, or null.
Capture* capture_of(const Stream* stream);
Capture* capture_with(uint64_t id);
CUresult begin_capture(Stream* origin, CaptureMode mode);
// Ends the capture that began on the stream. Null, with an error, where it cannot become a graph.
CUresult end_capture(Stream* origin, std::unique_ptr<Graph>* graph);

// Adds a step for the stream, which is captured. `does_something` is false for what only orders.
CUresult capture_step(Stream* stream, std::function<CUresult(Stream*, Launch&)> give,
                      bool does_something = true);
CUresult capture_record(Stream* stream, Event* event);
// The stream joins the capture if it takes part in none.
CUresult capture_wait(Stream* stream, const Event& event);

// Whether the calling thread may make a call that waits for the device or that other streams may
// have to wait for: CUDA refuses such calls while a stream is captured, and the capture is lost,
// unless the thread has said that it knows what it does.
bool is_refused_by_capture(const char* caller);
// The calling thread's.
CaptureMode& capture_mode();

CUresult launch_graph(GraphExec& exec, Stream* stream);
// Objects whose last holder is gone are destroyed on a thread of their own.
void drop_objects(const Graph& graph);
// The same when all launches are done.
void drop_objects_when_done(const GraphExec& exec);
void release_object(UserObject* object, unsigned count);

}  // namespace fake_gpu
