// THE knob table: everything that can be tuned, in one place. ARCHITECTURE.md says what else a
// new knob needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvdtune {

// kAuto chooses among those that keep the canonical order of additions; kRing, kHalvingDoubling and
// kTree do not.
enum class AllreduceChoice : uint8_t {
  kAuto,
  kDirect,
  kDoubling,
  kChain,
  kRing,
  kHalvingDoubling,
  kTree,
};

// The value of a knob that the training script declares itself. The core carries it and knows
// neither its type nor what it does.
struct ScriptValue {
  std::string name;   // begins with kScriptPrefix
  std::string value;  // as JSON

  bool operator==(const ScriptValue&) const = default;
};
inline constexpr std::string_view kScriptPrefix = "script.";

// Values of all knobs.
struct Setting {
  int64_t fusion_threshold_bytes = int64_t{128} << 20;
  double cycle_time_ms = 1.0;
  int64_t chunk_bytes = int64_t{512} << 10;
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
  bool torus_allreduce = false;
  AllreduceChoice allreduce_algorithm = AllreduceChoice::kAuto;
  bool cache_enabled = true;
  int64_t cache_capacity = 1024;
  int64_t channels = 1;
  std::vector<ScriptValue> script = {};  // by name; adopted at a step boundary, see StepSwitch

  bool operator==(const Setting&) const = default;
};

enum class KnobKind : uint8_t { kBool, kInt, kFloat, kCategory };
enum class KnobScope : uint8_t {
  kLive,     // adopted by every rank at one cycle boundary
  kReinit,   // needs shutdown() and init()
  kRestart,  // needs new processes
};

struct Knob {
  std::string_view name;
  KnobKind kind;
  std::string_view unit;
  double low;   // inclusive
  double high;  // inclusive; of a category the last choice
  bool log_scale;
  KnobScope scope;
  int min_hosts;  // has no effect on fewer hosts
  std::string_view doc;
  double (*get)(const Setting&);
  void (*set)(Setting&, double);
  std::span<const std::string_view> choices = {};  // of a category: its value is an index
};

std::span<const Knob> knob_table();
// Null if there is none of that name.
const Knob* find_knob(std::string_view name);
// The value of a category's choice. Throws Error(kUsage) naming the choices if it is none.
double choice_value(const Knob& knob, std::string_view choice);
// Throws Error(kUsage) naming the knob, its range and unit when the value does not fit.
void set_knob(Setting& setting, std::string_view name, double value);
// One line of JSON, knobs in table order and then those of the script.
std::string to_json(const Setting& setting);

}  // namespace hvdtune
